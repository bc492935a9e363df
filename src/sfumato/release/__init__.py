"""The guarded release: price, charge, read rows, add noise, record. No other code releases rows."""
