"""Queries: SQL text to plan and price. This package sees schemas, never rows."""
