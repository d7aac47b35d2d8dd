"""The jobs that land batches: cut and leased to workers, kept alive, published, given back."""
