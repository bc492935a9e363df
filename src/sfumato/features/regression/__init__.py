"""Regression over ordinary questions: what is asked, and what is made of the released numbers."""
