"""Spark's daemon for Python workers, with the libraries of tasks loaded before it forks.

Spark ends an idle Python worker after a minute, and PyIceberg takes seconds to load: a worker that is forked
from this daemon has it already.
"""

from __future__ import annotations

from pyspark.daemon import manager

from spark_jobs import merge, task

__all__ = ["merge", "task"]

if __name__ == "__main__":
    manager()  # type: ignore[no-untyped-call]
