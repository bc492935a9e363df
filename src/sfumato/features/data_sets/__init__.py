"""Data sets: upload a file or name a table, sign the card, amend it, remove earlier versions."""
