"""Strangers' programs run here: no network, no secrets, one capped pipe."""
