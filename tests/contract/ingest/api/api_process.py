"""The API as a process of its own, to be killed: prints its port, and serves until then.

python -m tests.contract.ingest.api.api_process FOLDER [DATABASE]
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from ingest.api import ApiSettings
from tests.contract.ingest.api.api_server import served

if __name__ == "__main__":
    folder, database = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None
    wide = ApiSettings(connections_per_s=1000, messages_per_s=10_000)
    with served(folder, database=database, settings=wide) as server:
        sys.stdout.write(f"{server.port}\n")
        sys.stdout.flush()
        threading.Event().wait()
