"""Measurements: `python -m bench.catalog` puts Calve beside Iceberg's reference server."""
