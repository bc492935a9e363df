"""Strangers' programs on real data: handed in, approved, run on blocks of people."""
