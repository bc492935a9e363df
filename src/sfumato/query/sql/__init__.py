"""SQL text becomes a query, by an allow-list of the whole syntax tree."""
