"""k-anonymity and what goes with it: measured, reached, and where it ends. Never called DP."""
