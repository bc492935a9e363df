"""The console: pages of the same verbs as the API, made on the server."""
