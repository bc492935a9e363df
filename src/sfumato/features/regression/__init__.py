"""Regression over ordinary queries: linear and logistic."""
