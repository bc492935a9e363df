"""Strangers' programs on real data: hand in, approve, run on blocks of people."""
