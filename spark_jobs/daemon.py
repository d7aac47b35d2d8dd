"""Start the Python worker processes of Spark with their libraries already loaded, so that small tasks are
cheap.

Spark forks its Python workers from this daemon.

- The daemon imports the libraries of tasks before it forks. Spark ends an idle worker after a minute, and
  PyIceberg takes seconds to load.
- A worker collects garbage after every task. The modules that are loaded here are never garbage, so they are
  frozen.
- A worker invalidates Python's import caches before every task. Python then reads the table of contents of
  each archive on the path again. So PySpark is imported from its folder, and archives are removed from the
  path.

Without the last two, an empty task takes 180 ms of processor time.
"""

from __future__ import annotations

import gc
import sys
from importlib.machinery import PathFinder

ARCHIVES = (".zip", ".jar")


def without_archives(path: list[str]) -> list[str]:
    """Return the module path without archives, if PySpark is found there as well; else unchanged."""
    folders = [entry for entry in path if not entry.endswith(ARCHIVES)]
    found = all(PathFinder.find_spec(name, folders) is not None for name in ("pyspark", "py4j"))
    return folders if found else path


def main() -> None:
    sys.path[:] = without_archives(sys.path)
    sys.path_importer_cache.clear()

    from pyspark import daemon, worker  # noqa: F401 - every task needs it

    from spark_jobs.landing import task  # noqa: F401

    gc.collect()
    gc.freeze()
    daemon.manager()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
