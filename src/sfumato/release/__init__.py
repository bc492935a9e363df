"""The guarded release: price, charge, read, add noise, record. No other code releases rows."""
