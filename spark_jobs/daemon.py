"""Spark's daemon for Python workers: a task in a worker that is forked from it costs little beside its work.

- The libraries of tasks are loaded before it forks. Spark ends an idle worker after a minute, and PyIceberg
  takes seconds to load.
- A worker collects garbage after every task. What is loaded here is never garbage, so it is frozen.
- A worker makes Python forget which files there are before every task. For each package from an archive,
  Python then reads the table of contents of the archive again. So PySpark is taken from its folder, and
  archives leave the path.

Without the last two, a task that does nothing takes 180 ms of processor time.
"""

from __future__ import annotations

import gc
import sys
from importlib.machinery import PathFinder

ARCHIVES = (".zip", ".jar")


def without_archives(path: list[str]) -> list[str]:
    """The path for modules without archives, if PySpark is found there as well. Else as it is."""
    folders = [entry for entry in path if not entry.endswith(ARCHIVES)]
    found = all(PathFinder.find_spec(name, folders) is not None for name in ("pyspark", "py4j"))
    return folders if found else path


def main() -> None:
    sys.path[:] = without_archives(sys.path)
    sys.path_importer_cache.clear()

    from pyspark import daemon, worker  # noqa: F401 - every task needs it

    from spark_jobs import merge, task  # noqa: F401

    gc.collect()
    gc.freeze()
    daemon.manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
