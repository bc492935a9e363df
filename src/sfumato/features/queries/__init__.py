"""Queries: price and answer queries, and show stored answers, budgets and the history."""
