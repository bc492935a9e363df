"""What the makers of sfumato run: its site, and the list of what it is made of."""
