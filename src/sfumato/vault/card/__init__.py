"""The data card: what an owner declares of a data set before any query."""
