"""Table functions under `/lake/v1`: snapshots, history, differences, rows, schema, partitions, files."""
