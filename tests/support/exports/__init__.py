"""Synthetic exports in the standards of clinics, and what clinicians ask of them."""
