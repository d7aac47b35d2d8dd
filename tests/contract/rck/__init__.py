"""Iceberg's own Java code as a judge: the compatibility kit, the metadata parsers, the reference server."""
