"""The format of messages between server and client: API verbs, JSON schemas, status codes."""
