"""Synthetic data (twins), made from a card or from released numbers, never from rows."""
