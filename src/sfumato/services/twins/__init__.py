"""Look-alike data: from the card alone, or from private marginals that are paid for."""
