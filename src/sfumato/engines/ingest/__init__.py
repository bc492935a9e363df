"""Reading an owner's files into prepared tables."""
