"""Calve beside Iceberg's reference server: `python -m bench.catalog`."""
