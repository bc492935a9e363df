"""The HTTP server (edge): API endpoints, connection limits, security headers, OpenAPI."""
