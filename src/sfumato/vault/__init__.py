"""The vault's data types: data cards, users, ledger entries and the hash chain.

The package also holds the vault's ports: protocols of the engine, the stores and the clock.
"""
