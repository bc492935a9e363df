"""The theory: budgets, accounting, mechanisms, sampling; no I/O, clock, randomness or database."""
