"""SQL over HTTP: queries of the lake as of any moment, run by DuckDB in confined child processes."""
