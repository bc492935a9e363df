"""The web console: its session, its forms, and the pages that all features share."""
