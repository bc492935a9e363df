"""Differential privacy as pure functions: budgets, accounting, mechanisms, sampling.

Nothing here does I/O or reads a clock, a database or the system's random numbers.
"""
