"""Contribution bounding in integer arithmetic (numpy)."""
