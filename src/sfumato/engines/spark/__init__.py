"""Spark as a query engine."""
