"""Learning from rows that stay: what sites are to learn, and exact arithmetic to learn it with."""
