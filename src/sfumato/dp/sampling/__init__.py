"""Exact samplers in integer arithmetic: threshold tables, exponentials, geometric distribution."""
