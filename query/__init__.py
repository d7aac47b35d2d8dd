"""Run SQL over HTTP on the tables of a warehouse at any moment, with DuckDB in sandboxed child processes."""
