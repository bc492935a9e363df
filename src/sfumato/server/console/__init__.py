"""The web console: its shell and base pages."""
