"""k-anonymity, l-diversity, t-closeness and others: measure them, and recode tables to meet them.

These criteria are not differential privacy.
"""
