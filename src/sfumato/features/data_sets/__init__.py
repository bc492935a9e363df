"""Data sets: upload rows or name a table, sign the card, amend it, remove earlier versions."""
