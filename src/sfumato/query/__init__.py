"""Queries: from SQL text to a plan and its price. This package sees schemas (cards), never rows."""
