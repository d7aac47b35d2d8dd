"""Cut batches, lease them to workers as jobs, and publish them."""
