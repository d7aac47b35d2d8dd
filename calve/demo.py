"""The live view of `calve demo`: how many changes are acknowledged and visible, the lag, the tables.

On a terminal the view is redrawn in place; elsewhere it is one plain line a second. The demo survives a
restart of the server: a batch without an acknowledgement is sent again, and the server takes it once.
"""

from __future__ import annotations

import contextlib
import random
import signal
import statistics
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import httpx
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from calve.cli.row_count import kept_rows
from calve.client.calls import DEFAULT_URL
from calve.demo_shop import NAMESPACE, TABLES, Shop

TICK_S = 0.25
LINE_EVERY_S = 1.0
ROWS_EVERY_S = 1.0
VISIBLE_WAIT_S = 240.0  # on a busy machine Spark may need minutes to start; Ctrl-C ends the wait
TIMEOUT_S = 30.0
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
RETRIED = frozenset({429, 500, 502, 503, 504})


class DemoFailed(Exception):
    """The demo cannot go on; the message says what to do."""


def run_demo(
    url: str,
    *,
    token: str | None = None,
    rate_per_s: int = 200,
    duration_s: float | None = None,
    console: Console | None = None,
) -> int:
    """Send changes until Ctrl-C or for `duration_s`. The exit code is 0 if all of them are visible."""
    url, console = url.rstrip("/"), console or Console(highlight=False)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    # A proxy named in the environment does not know this machine's own addresses.
    is_here = httpx.URL(url).host in LOOPBACK
    with httpx.Client(base_url=url, headers=headers, timeout=TIMEOUT_S, trust_env=not is_here) as client:
        try:
            client.get("/health").raise_for_status()
            demo = Demo(client, rate_per_s)
            with _view(console, demo) as show, contextlib.suppress(KeyboardInterrupt):
                with _interrupts(demo.stop):
                    demo.send(duration_s, show)
                demo.wait_until_visible(show)
        except httpx.HTTPError:
            _fail(f"No server answers at {url}. Start one with `make run`, or with `calve serve`.")
            return 1
        except DemoFailed as error:
            _fail(str(error))
            return 1
        except KeyboardInterrupt:  # before the first change was sent
            return 130
    console.print(demo.figures.summary(), markup=False, soft_wrap=True)
    console.print(next_steps(url, with_token=token is not None), markup=False, soft_wrap=True)
    return 0 if demo.figures.waiting == 0 else 1


@contextlib.contextmanager
def _interrupts(stop: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C calls `stop`, so that no request is cut off; the next one raises KeyboardInterrupt."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        stop()

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _fail(message: str) -> None:
    Console(stderr=True, highlight=False).print(f"calve: {message}", markup=False, soft_wrap=True)


@dataclass
class Figures:
    """What the view shows."""

    rate_per_s: int
    began_s: float = field(default_factory=time.monotonic)
    acknowledged: int = 0
    visible: int = 0
    acknowledge_ms: float | None = None
    lag_s: float | None = None
    first_visible_s: float | None = None  # since the start
    lags_s: list[float] = field(default_factory=list)
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    reason: str | None = None  # why nothing becomes visible, or what is being waited for
    sending: bool = True
    # Batches: acknowledged with them, when, and the last sequence of each of their tables.
    _unseen: deque[tuple[int, float, Mapping[str, int]]] = field(default_factory=deque)

    @property
    def waiting(self) -> int:
        return self.acknowledged - self.visible

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.began_s

    def acknowledge(self, count: int, took_s: float, last: Mapping[str, int]) -> None:
        """Changes were acknowledged; `last` has the last sequence of each of their tables."""
        self.acknowledged += count
        self.acknowledge_ms = took_s * 1000
        self._unseen.append((self.acknowledged, time.monotonic(), last))

    def see(self, landed: Mapping[str, int]) -> None:
        """The changes of this demo are visible up to these sequences of the tables."""
        now_s = time.monotonic()
        newly_visible = []
        while self._unseen and all(landed.get(table, 0) >= at for table, at in self._unseen[0][2].items()):
            self.visible, at_s, _ = self._unseen.popleft()
            newly_visible.append(now_s - at_s)
        if not newly_visible:
            return
        if self.first_visible_s is None:
            self.first_visible_s = self.elapsed_s
        self.lag_s = newly_visible[0]
        self.lags_s += newly_visible

    def summary(self) -> str:
        counts = f"{self.acknowledged:,} changes acknowledged and {self.visible:,} visible"
        lines = [f"{counts} after {self.elapsed_s:.0f} s."]
        if self.first_visible_s is not None and self.lags_s:
            lines.append(
                f"First rows visible after {self.first_visible_s:.1f} s; median lag"
                f" {statistics.median(self.lags_s):.1f} s."
            )
        lines += [
            f"{name}: {table['rows']:,} rows, from {table['changes']:,} changes."
            for name, table in self.tables.items()
        ]
        if self.waiting:
            lines.append(f"{self.waiting:,} changes are not visible yet: {self.reason or 'they will land'}.")
        return "\n".join(lines)


Show = Callable[[Figures], None]


class Demo:
    """Sends the changes of a shop and reads what the server says about them."""

    def __init__(self, client: httpx.Client, rate_per_s: int) -> None:
        self._client = client
        self._shop = Shop(random.Random())  # noqa: S311 - a game
        self._source = f"demo-{uuid.uuid4().hex[:8]}"
        self._batch = max(1, round(rate_per_s * TICK_S))
        self._rows_at_s = 0.0
        self._stopping = threading.Event()
        self.figures = Figures(rate_per_s)
        self._get("/status")  # a missing token is known before anything is shown

    def stop(self) -> None:
        """Send nothing after the current request. From a signal handler, too."""
        self._stopping.set()

    def send(self, duration_s: float | None, show: Show) -> None:
        while not self._stopping.is_set() and (duration_s is None or self.figures.elapsed_s < duration_s):
            tick_s = time.monotonic()
            events = self._shop.changes(self._batch)
            while not self._post(events):  # the same batch: the server recognises what it has already
                show(self.figures)
                if self._stopping.is_set():
                    return
                time.sleep(TICK_S * 2)
            self._look()
            show(self.figures)
            time.sleep(max(0.0, tick_s + TICK_S - time.monotonic()))

    def wait_until_visible(self, show: Show) -> None:
        """Wait until everything that was sent is visible, or until it is clear that it will not be."""
        self.figures.sending = False
        until_s = time.monotonic() + VISIBLE_WAIT_S
        with contextlib.suppress(httpx.HTTPError):
            self._client.post("/flush", json={"wait": False})
        while self.figures.waiting and time.monotonic() < until_s:
            self._look()
            show(self.figures)
            if self.figures.waiting and (self.figures.reason or "").startswith("Spark worker not running"):
                return
            time.sleep(TICK_S)
        self._rows_at_s = 0.0
        self._look()
        show(self.figures)

    def _post(self, events: list[dict[str, Any]]) -> bool:
        began_s = time.monotonic()
        try:
            answer = self._client.post("/cdc", json={"events": events}, headers={"X-Source-Id": self._source})
        except httpx.HTTPError as error:
            self.figures.reason = f"the server does not answer ({error}); trying again"
            return False
        if answer.status_code in RETRIED:
            self.figures.reason = f"the server answered {answer.status_code}; trying again"
            return False
        _require_success(answer)
        last = {event["table"]: event["sequence"] for event in events}
        self.figures.acknowledge(len(events), time.monotonic() - began_s, last)
        return True

    def _look(self) -> None:
        """Read /status and, now and then, how many rows the tables have."""
        try:
            landing, tables = self._status()
            if time.monotonic() - self._rows_at_s >= ROWS_EVERY_S:
                self._rows_at_s = time.monotonic()
                self._count_rows(tables)
        except httpx.HTTPError as error:
            self.figures.reason = f"the server does not answer ({error}); trying again"
            return
        figures = self.figures
        figures.see({name: self._landed_up_to(table) for name, table in tables.items()})
        figures.reason = self._reason(landing)

    def _reason(self, landing: dict[str, Any]) -> str | None:
        """Why changes wait; None while they land as usual."""
        worker = landing.get("worker", "ok")
        if not self.figures.waiting:
            return None
        if worker != "ok":
            return f"Spark worker {worker}"
        if stalled := landing.get("stalled"):
            return str(stalled)
        return "the first batch is being written" if self.figures.first_visible_s is None else None

    def _landed_up_to(self, table: dict[str, Any]) -> int:
        """The last sequence of this demo that is visible in a table; its watermark has it in hexadecimal."""
        mark = table["watermarks"].get(self._source)
        return int(mark["position"], 16) if mark else 0

    def _status(self) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        landing: dict[str, Any] = self._get("/status")["landing"]
        tables = {
            name: table for name, table in landing["tables"].items() if name.startswith(f"{NAMESPACE}.")
        }
        return landing, tables

    def _count_rows(self, landed: dict[str, dict[str, Any]]) -> None:
        for name in (f"{NAMESPACE}.{name}" for name in TABLES):
            if landed.get(name, {}).get("events"):
                rows = kept_rows(landed[name])
                self.figures.tables[name] = {
                    "rows": self._counted(name) if rows is None else rows,
                    "changes": landed[name]["events"],
                }

    def _counted(self, name: str) -> int:
        """The rows of a table that something else has written to as well."""
        body = {"sql": f"SELECT count(*) AS n FROM {name}"}  # noqa: S608 - a name of ours
        return int(self._answered(self._client.post("/query", json=body))["rows"][0]["n"])

    def _get(self, path: str) -> dict[str, Any]:
        return self._answered(self._client.get(path))

    def _answered(self, answer: httpx.Response) -> dict[str, Any]:
        if answer.status_code in RETRIED:
            raise httpx.HTTPStatusError(
                f"status {answer.status_code}", request=answer.request, response=answer
            )
        _require_success(answer)
        found: dict[str, Any] = answer.json()
        return found


def _require_success(answer: httpx.Response) -> None:
    if answer.status_code == 401:
        raise DemoFailed(
            "The server answered 401: give a token with --token; a principal with the role writer gets one"
            " (`calve principal create NAME --role writer`)."
        )
    if answer.status_code == 403:
        raise DemoFailed(
            "The server answered 403: the principal of this token needs the role writer"
            " (`calve principal grant NAME --role writer`)."
        )
    if not answer.is_success:
        raise DemoFailed(f"The server answered {answer.status_code}: {answer.text[:500]}")


# -- what a person sees


@contextlib.contextmanager
def _view(console: Console, demo: Demo) -> Iterator[Show]:
    """A function that shows the figures: in place on a terminal, else as a line a second."""
    client = demo._client  # noqa: SLF001 - one module
    url = str(client.base_url).rstrip("/")
    if console.is_terminal:
        hint = try_next(url, with_token="authorization" in client.headers)
        with Live(_panel(demo.figures, url, hint), console=console, auto_refresh=False) as live:
            yield lambda figures: live.update(_panel(figures, url, hint), refresh=True)
        return
    shown_at_s = -LINE_EVERY_S

    def show(figures: Figures) -> None:
        nonlocal shown_at_s
        if time.monotonic() - shown_at_s >= LINE_EVERY_S:
            shown_at_s = time.monotonic()
            console.print(line(figures), markup=False, soft_wrap=True)

    console.print(
        f"Sending {demo.figures.rate_per_s} changes a second to {url}", markup=False, soft_wrap=True
    )
    yield show


def line(figures: Figures) -> str:
    """The figures for a pipe or a file."""
    lag = f"{figures.lag_s:.1f} s" if figures.lag_s is not None else "-"
    parts = [
        f"acknowledged={figures.acknowledged}",
        f"visible={figures.visible}",
        f"waiting={figures.waiting}",
        f"lag={lag}",
        *(f"{name}={table['rows']} rows" for name, table in figures.tables.items()),
    ]
    return "  ".join(parts) + (f"  {figures.reason}" if figures.reason else "")


def _panel(figures: Figures, url: str, hint: str) -> Group:
    state = f"{figures.rate_per_s} changes a second" if figures.sending else "no more are sent"
    head = Text.from_markup(
        f"[bold]calve demo[/bold]  {escape(url)}  {state}, {figures.elapsed_s:.0f} s  (Ctrl-C ends it)"
    )
    numbers = Table(box=None, show_header=False, padding=(0, 2))
    acknowledge = f"in {figures.acknowledge_ms:.1f} ms" if figures.acknowledge_ms is not None else ""
    first = f"first after {figures.first_visible_s:.1f} s" if figures.first_visible_s is not None else ""
    numbers.add_row("acknowledged", f"{figures.acknowledged:,}", acknowledge)
    numbers.add_row("visible", f"{figures.visible:,}", first)
    numbers.add_row("lag", f"{figures.lag_s:.1f} s" if figures.lag_s is not None else "-", "")
    tables = Table(box=None, padding=(0, 2))
    for column in ("table", "rows", "changes"):
        tables.add_column(column, justify="left" if column == "table" else "right")
    for name, table in figures.tables.items():
        tables.add_row(name, f"{table['rows']:,}", f"{table['changes']:,}")
    parts: list[Any] = [head, Text(), numbers, Text(), tables]
    if figures.reason:
        parts += [Text(), Text(figures.reason, style="yellow")]
    return Group(*parts, Text(), Text(hint, style="dim"))


def try_next(url: str, *, with_token: bool) -> str:
    """Commands for the server of the demo. Each fits a terminal of 80 columns, so that it can be copied."""
    named = [f"export CALVE_URI={url}"] if url != DEFAULT_URL else []
    named += ["export CALVE_TOKEN=TOKEN"] if with_token else []
    return "\n  ".join((_HINT, *named, *(words.format(namespace=NAMESPACE) for words in _COMMANDS)))


def next_steps(url: str, *, with_token: bool) -> str:
    """Queries that work on what the demo has written."""
    access, secret = "AUTHORIZATION_TYPE 'none'", ""
    if with_token:
        access, secret = "SECRET calve", "\n  CREATE SECRET calve (TYPE iceberg, TOKEN 'TOKEN');"
    duckdb = _DUCKDB.format(url=url, access=access, secret=secret, namespace=NAMESPACE)
    return f"\n{try_next(url, with_token=with_token)}\n\n{duckdb}"


_HINT = "Try next, in another shell (`.venv/bin/calve` in a clone):"
_COMMANDS = (
    'calve query "SELECT status, count(*) FROM {namespace}.orders GROUP BY 1"',
    'calve query "SELECT count(*) FROM {namespace}.orders" --as-of "1 minute ago"',
    "calve tail {namespace}.orders",
)
_DUCKDB = """In DuckDB:

  INSTALL iceberg; LOAD iceberg;{secret}
  ATTACH 'main' AS lake (TYPE iceberg, ENDPOINT '{url}', {access});
  SELECT status, count(*), sum(amount) FROM lake.{namespace}.orders GROUP BY status;
  SELECT sum(balance) FROM lake.{namespace}.accounts;          -- always 1000
  SELECT * FROM lake.{namespace}.orders__changes ORDER BY _position DESC LIMIT 10;
"""
