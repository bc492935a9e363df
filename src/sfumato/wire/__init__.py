"""JSON shapes, verbs and status codes that server and client share."""
