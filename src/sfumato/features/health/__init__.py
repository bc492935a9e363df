"""The health of the service: its readiness and its metrics."""
