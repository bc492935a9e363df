"""Queries: price, ask, answers and history."""
