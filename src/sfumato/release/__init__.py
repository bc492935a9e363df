"""The guarded release: price, charge, read, add noise, record. Rows leave no other way."""
