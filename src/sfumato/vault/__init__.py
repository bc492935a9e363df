"""The vault's data types: cards, users, ledger entries and the hash chain.

The package also holds the vault's ports (protocols).
"""
