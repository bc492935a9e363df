"""Confidence intervals of noisy numbers, of their sums and of their ratios."""
