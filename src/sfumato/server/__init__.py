"""Thin faces: they translate and decide nothing."""
