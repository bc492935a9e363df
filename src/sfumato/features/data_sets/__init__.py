"""Data sets: upload rows or name a table, sign the data card, remove earlier versions."""
