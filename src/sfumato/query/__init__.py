"""A query from its text to its plan and price; sees schemas, never rows."""
