"""From the journal to a job: which tables are due, up to where, in which order, typed, staged as Parquet."""
