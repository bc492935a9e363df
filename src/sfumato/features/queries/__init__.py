"""Questions: what they would cost, their answers, and what is left."""
