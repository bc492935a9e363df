"""Readiness of the service, and its metrics."""
