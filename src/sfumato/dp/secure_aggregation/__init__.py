"""Secure aggregation: masks, secret shares and the terms of a round."""
