"""What a vault consists of: users, ledger entries, the hash chain, and the ports to the world."""
