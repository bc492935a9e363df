"""Exact samplers in integers: thresholds, powers, the geometric law."""
