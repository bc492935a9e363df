"""The only place that builds concrete things and holds credentials."""
