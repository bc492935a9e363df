"""The vault's data types: cards, users, ledger entries, the hash chain, and its ports."""
