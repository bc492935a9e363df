"""Synthetic data (twins): from the card alone, or from noisy marginals."""
