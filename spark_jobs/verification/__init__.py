"""Compare a mirror with the fold of its changes."""
