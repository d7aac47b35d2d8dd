"""Landing: batches are cut, leased to workers as jobs, and published."""
