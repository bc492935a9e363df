"""JSON shapes and codes that server and client share."""
