"""Read SQL text as a query, by an allow-list of the whole syntax tree."""
