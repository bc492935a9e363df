"""Health: the service's readiness and its metrics."""
