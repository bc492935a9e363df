"""Contribution bounding in whole numbers."""
