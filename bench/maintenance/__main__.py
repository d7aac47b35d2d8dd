"""Measure maintenance.

python -m bench.maintenance commits --commits 20000     # one table, with and without maintenance
python -m bench.maintenance compaction --batches 120    # bytes rewritten for each byte landed, rows a second
python -m bench.maintenance landing --seconds 60        # freshness with and without maintenance
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict
from pathlib import Path

from bench.maintenance import commits, compaction, landing


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.maintenance", description=__doc__)
    parser.add_argument("what", choices=("commits", "compaction", "landing"))
    parser.add_argument("--commits", type=int, default=20_000)
    parser.add_argument("--without", action="store_true", help="without maintenance, for comparison")
    parser.add_argument("--batches", type=int, default=120)
    parser.add_argument("--rows", type=int, default=5_000, help="rows of one batch")
    parser.add_argument("--seconds", type=float, default=60, help="how long freshness is measured in a turn")
    parser.add_argument("--turns", type=int, default=1, help="turns with and without maintenance")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.what == "commits":
            found = commits.run(Path(folder), options.commits, is_on=not options.without, say=print)
            print(json.dumps([asdict(sample) for sample in found], indent=1))
        elif options.what == "landing":
            print(json.dumps(landing.run(Path(folder), options.seconds, options.turns, print), indent=1))
        else:
            print(json.dumps(compaction.run(Path(folder), options.batches, options.rows, print), indent=1))


if __name__ == "__main__":
    main()
