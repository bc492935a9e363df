"""Synthetic data (twins): from the data card alone, or from noisy marginals."""
