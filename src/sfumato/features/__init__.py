"""Features, one folder each, from the model to the page; none imports another."""
