"""Land batches: one Spark job writes the files of all tables of a batch, one publish makes them visible."""
