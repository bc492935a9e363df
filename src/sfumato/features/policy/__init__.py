"""What an owner decides of their data sets: who may ask, how much, and when to stop."""
