"""The wire format that server and client share: verbs, JSON schemas and status codes."""
