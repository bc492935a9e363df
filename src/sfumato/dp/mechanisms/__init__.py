"""The mechanisms: exact discrete noise, decided by integers alone, the tail included."""
