"""Fixtures of the tests about concurrency and faults."""

from __future__ import annotations

from tests.concurrency.seeds import seed

__all__ = ["seed"]
