"""Failpoints: named points in the path of a write where a test can kill this process.

They do nothing unless the variable CALVE_FAULTS is set when the process starts:

    CALVE_FAULTS=swap.before-commit=kill:3      SIGKILL when that point is reached for the third time
    CALVE_FAULTS=*=kill:7                       SIGKILL when any point is reached for the seventh time

Several are separated by commas. Code calls `faults.reach(name)` through the module, so that a test in the
same process can replace `reach` and block a writer there.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

VARIABLE = "CALVE_FAULTS"
ANY = "*"
# In the order of a write: plan, metadata files, one SQL transaction for the rows.
POINTS = (
    "write.decided",
    "write.file-written",
    "swap.begun",
    "swap.row-set",
    "swap.before-number",
    "swap.before-history",
    "swap.before-record",
    "publish.locked",
    "publish.before-close",
    "swap.before-commit",
    "swap.committed",
    "write.before-answer",
)
# Points in ingest: the files of a job are staged; inside its publish; after its publish.
INGEST_POINTS = ("job.staged", "job.finished", "job.published")
# Points in maintenance: the files of expired snapshots are queued; each kind of file is deleted.
MAINTENANCE_POINTS = (
    "expire.queued",
    "expire.committed",
    "cleanup.data-files",
    "cleanup.manifests",
    "cleanup.manifest-lists",
    "cleanup.others",
)
_KNOWN = (*POINTS, *INGEST_POINTS, *MAINTENANCE_POINTS)


def armed(text: str) -> Callable[[str], None]:
    """The function that replaces `reach` while faults are on. ValueError if the text is not valid."""
    lock = threading.Lock()
    left = {}
    for part in text.split(","):
        name, _, action = part.strip().partition("=")
        verb, _, times = action.partition(":")
        known = name == ANY or name in _KNOWN
        if not known or verb != "kill" or not (times or "1").isdigit():
            raise ValueError(
                f"{VARIABLE}: {part!r} is not NAME=kill:TIMES with a name of {', '.join(_KNOWN)}"
            )
        left[name] = int(times or "1")

    def reach(name: str) -> None:
        with lock:
            for known in (name, ANY):
                if known in left:
                    left[known] -= 1
                    if left[known] == 0:
                        os.kill(os.getpid(), signal.SIGKILL)

    return reach


_OFF: dict[str, None] = {}
# While faults are off, a look-up in an empty dict: writes reach many points, and this calls no function here.
reach: Callable[[str], None] = armed(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else _OFF.get
