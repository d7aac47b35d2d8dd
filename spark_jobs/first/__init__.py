"""The first worker."""
