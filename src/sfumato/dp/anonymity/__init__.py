"""k-anonymity and its kin: measured and reached. This is not differential privacy."""
