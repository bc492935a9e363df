"""Secure aggregation: sums over sites under masks that cancel, and survive those who drop out."""
