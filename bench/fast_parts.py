"""What each part of catalog/fast earns: a server with all of them beside one that lacks the part.

    python -m bench.fast_parts [PART…] [--database sqlite|postgres] [--rounds N] [--seconds N]

Each round measures both servers one after the other and changes their order; the figure is the median of the
ratios, so the load of other programs matters little. The processor time of the server for each operation is
printed too. It hardly depends on that load, but does not include waits for the disk and for locks. A part
that earns less than 1.3 on every row is deleted.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.catalog.rows import ROWS, Row
from bench.catalog.target import Target, prepare
from bench.rivals.server import serving
from tests.harness.ports import free_port
from tests.harness.postgres import PostgresServer
from tests.harness.process import Child
from tests.harness.server import environment

READS = ("load-fresh", "load-grown", "load-grown-gzip", "not-modified", "list")
WRITES = ("create-drop", "commit", "transaction")
PARTS: dict[str, tuple[str, ...]] = {
    "reads": READS,
    "one_round_trip": (*WRITES, "contended"),  # PostgreSQL
    "commit_queue": ("contended",),
    "documents": (*WRITES, "contended"),
    "all": tuple(row.key for row in ROWS),
}


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        _serve_without(sys.argv[2], sys.argv[3:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", default=list(PARTS))
    parser.add_argument("--database", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    given = parser.parse_args()
    with contextlib.ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory(prefix="calve-parts-")))
        postgres = running.enter_context(PostgresServer.started()) if given.database == "postgres" else None
        whole = running.enter_context(_served(folder / "whole", "nothing", postgres))
        for part in given.parts:
            with _served(folder / part, part, postgres) as without:
                for row in ROWS:
                    if row.key in PARTS[part]:
                        _compare(part, row, whole, without, given.rounds, given.seconds)


def _compare(part: str, row: Row, whole: Target, without: Target, rounds: int, seconds: int) -> None:
    for clients in row.clients:
        rates: list[tuple[float, float]] = []
        p99s: list[tuple[float, float]] = []
        cpus: list[tuple[float, float]] = []
        for number in range(rounds):
            order = (whole, without) if number % 2 else (without, whole)
            found = {id(target): row.work.measure(target, clients, seconds) for target in order}
            one, other = found[id(whole)], found[id(without)]
            rates.append((one.rate, other.rate))
            p99s.append((one.p99_ms, other.p99_ms))
            cpus.append((one.server_cpu_ms, other.server_cpu_ms))
        ratios = sorted(one / other for one, other in rates)
        with_it, without_it = (_median(column) for column in zip(*rates, strict=True))
        p99_with, p99_without = (_median(column) for column in zip(*p99s, strict=True))
        cpu_with, cpu_without = (_median(column) for column in zip(*cpus, strict=True))
        print(
            f"{part:15} {row.key:16} {clients} clients: {with_it:7.0f} /s with, {without_it:7.0f} /s without,"
            f" ratio {_median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}),"
            f" p99 {p99_with:.1f} ms with, {p99_without:.1f} ms without,"
            f" processor {cpu_with:.2f} ms with, {cpu_without:.2f} ms without,"
            f" ratio {cpu_without / cpu_with:.2f}",
            flush=True,
        )


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)


@contextlib.contextmanager
def _served(folder: Path, part: str, postgres: PostgresServer | None) -> Iterator[Target]:
    folder.mkdir(parents=True)
    port, settings = free_port(), {"CALVE_FAST_PATHS": "false" if part == "all" else "true"}
    if postgres is not None:
        settings["CALVE_DATABASE"] = postgres.database()
    command = [sys.executable, "-m", "bench.fast_parts", "serve", part]
    options = ["--home", str(folder / "lake")]
    if postgres is not None:
        subprocess.run([*command, "migrate", *options], env=environment(settings), check=True)
    child = Child(
        [*command, "serve", "--no-worker", "--port", str(port), *options],
        log=folder / "calve.log",
        environment=environment(settings),
    )
    with serving("calve", child, port=port, warehouse="main") as server:
        yield prepare(server, strict=True)


def _serve_without(part: str, words: list[str]) -> None:
    """Run `calve` in a process that lacks one part."""
    import calve.app
    from calve import cli
    from catalog import fast
    from catalog.fast.reads import DocumentCache
    from catalog.services.warehouse_state import Documents

    changes: dict[str, Callable[[], None]] = {
        "reads": lambda: setattr(fast, "install", lambda app, *_, **__: app),
        "one_round_trip": lambda: setattr(fast, "writer", lambda _url: None),
        "commit_queue": lambda: setattr(calve.app, "CommitQueue", lambda: None),
        "documents": lambda: _keep_nothing(DocumentCache, Documents),
    }
    changes.get(part, lambda: None)()
    sys.exit(cli.main(words))


def _keep_nothing(cache: type, plain: type) -> None:
    for name in ("text", "put_text", "parsed", "encode"):
        setattr(cache, name, getattr(plain, name))


if __name__ == "__main__":
    main()
