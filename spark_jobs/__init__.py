"""Spark against the catalog. Speaks REST only: imports nothing of the other parts."""
