"""BROKEN mechanisms, kept as specimens for the attacks. None of them protects anybody."""
