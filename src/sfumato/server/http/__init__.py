"""The HTTP server process: API endpoints, connection limits, security headers, OpenAPI."""
