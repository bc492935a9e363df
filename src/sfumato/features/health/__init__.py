"""The health of the service: whether it is ready, and its metrics."""
