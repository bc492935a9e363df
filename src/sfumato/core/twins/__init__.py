"""Look-alike data: made from a card alone, or from numbers that were released; never from rows."""
