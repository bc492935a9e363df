"""The HTTP server: API endpoints, limits on connections, OpenAPI."""
