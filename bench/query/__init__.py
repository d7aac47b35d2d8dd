"""Measures queries through `/query` beside DuckDB that is attached to the same catalog."""
