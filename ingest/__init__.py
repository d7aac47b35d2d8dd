"""Ingest: the API for changes, the formats of producers, the journal, batches and the jobs that land them."""
