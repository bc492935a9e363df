"""The composition root: it constructs all services and is the only holder of credentials."""
