"""Databases that the operator lets owners take rows from, each by a name."""
