"""k-anonymity, l-diversity, t-closeness and more: measure them, and recode tables to reach them.

This is not differential privacy.
"""
