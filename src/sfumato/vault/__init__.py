"""The vault's data types: cards, users, ledger entries and the hash chain.

And its ports (protocols).
"""
