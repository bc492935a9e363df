"""Surfaces over HTTP: they translate and decide nothing."""
