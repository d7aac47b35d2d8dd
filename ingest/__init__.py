"""The front door for changes: producers' formats, the journal, batches and the jobs that land them."""
