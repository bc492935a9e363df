"""Pure thought: numbers, promises, words. No I/O, clock, dice or database."""
