"""Parsers of array files (NumPy, NIfTI, MATLAB) that untrusted programs write."""
