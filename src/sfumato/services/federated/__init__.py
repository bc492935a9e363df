"""A site's part of a federation: agreements, rounds of sums over sites, and callers' tensors."""
