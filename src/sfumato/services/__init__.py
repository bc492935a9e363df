"""The things a user would name; none imports another, an engine or a store."""
