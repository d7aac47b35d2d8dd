"""Servers to measure Calve against, each started and ended by this package."""
