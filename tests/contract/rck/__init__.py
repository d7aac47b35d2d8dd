"""Iceberg's own Java code as a judge: the compatibility kit, its metadata parsers, and the reference server."""
