"""The composition root: it constructs all services. No other package holds credentials."""
