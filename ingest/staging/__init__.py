"""Staging: a range of the journal becomes typed Parquet files and the description of a job."""
