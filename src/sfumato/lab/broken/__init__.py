"""BROKEN mechanisms, kept as specimens for attacks and audits. None of them protects anybody."""
