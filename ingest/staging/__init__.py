"""Turn a range of the journal into typed Parquet files and the description of a job."""
