"""Features, one folder each, from the model to the page.

A feature may import another one only where `tests/house/test_import_walls.py` lists the exception.
Verbs are the other case: they may call the services of any feature.
"""
