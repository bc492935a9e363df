"""Parse SQL text into a query, by an allow-list of the whole syntax tree."""
