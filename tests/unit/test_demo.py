"""The figures and the view of `calve demo`."""

from __future__ import annotations

import io
from typing import Any

import httpx
import pytest
from rich.console import Console

from calve import demo
from calve.demo import Figures, line


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in its only element."""
    now = [100.0]
    monkeypatch.setattr("calve.demo.time.monotonic", lambda: now[0])
    return now


def test_the_lag_is_from_acknowledged_to_visible(clock: list[float]) -> None:
    figures = Figures(200, began_s=100.0)
    figures.acknowledge(50, 0.002, {"orders": 50})
    clock[0] = 100.5
    figures.acknowledge(50, 0.004, {"orders": 100, "accounts": 98})
    figures.see({"orders": 49})
    assert (figures.visible, figures.waiting, figures.lag_s, figures.first_visible_s) == (0, 100, None, None)
    clock[0] = 101.0
    figures.see({"orders": 100, "accounts": 12})
    assert (figures.visible, figures.waiting, figures.lag_s) == (50, 50, 1.0)
    clock[0] = 101.5
    figures.see({"orders": 100, "accounts": 98})
    assert (figures.visible, figures.waiting, figures.lag_s) == (100, 0, 1.0)
    assert figures.lags_s == [1.0, 1.0]
    assert figures.first_visible_s == 1.0
    assert figures.acknowledge_ms == 4.0
    assert "100 changes acknowledged and 100 visible after 2 s." in figures.summary()
    assert "First rows visible after 1.0 s; median lag 1.0 s." in figures.summary()


def test_changes_of_an_earlier_demo_do_not_count_as_visible() -> None:
    """They have another source, and land after the new demo has begun."""
    tables = {"shop.orders": {"events": 0, "watermarks": {}}}

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/status":
            return httpx.Response(200, json={"landing": {"tables": tables, "worker": "ok"}})
        return httpx.Response(200, json={"rows": [{"n": 1}]})

    with httpx.Client(transport=httpx.MockTransport(answer), base_url="http://calve") as client:
        running = demo.Demo(client, 40)
        running.send(0.1, lambda _: None)
        sent = running.figures.acknowledged
        tables["shop.orders"] = {"events": 500, "watermarks": {"demo-earlier": {"position": "01f4"}}}
        running._look()
        assert (running.figures.visible, running.figures.waiting) == (0, sent)
        own = {"position": f"{sent:016x}"}
        for name in ("shop.orders", "shop.accounts"):
            tables[name] = {"events": 500 + sent, "watermarks": {running._source: own}}
        running._look()
        assert (running.figures.visible, running.figures.waiting) == (sent, 0)


def test_the_summary_says_why_changes_are_not_visible(clock: list[float]) -> None:
    figures = Figures(200, began_s=clock[0])
    figures.acknowledge(10, 0.001, {})
    figures.reason = "Spark worker not running: jars missing, run `make setup`"
    assert figures.summary().endswith(
        "10 changes are not visible yet: Spark worker not running: jars missing, run `make setup`."
    )


@pytest.mark.parametrize(
    ("kept", "rows"), [({"state": "kept", "rows": 10}, 10), ({"state": "unknown", "rows": 10}, 7), ({}, 7)]
)
def test_rows_are_those_that_batches_counted_else_they_are_counted(kept: dict[str, Any], rows: int) -> None:
    table = {"events": 9, "watermarks": {}, "verification": {"kept-checksums": kept}}

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/query":
            return httpx.Response(200, json={"rows": [{"n": 7}]})
        return httpx.Response(200, json={"landing": {"tables": {"shop.orders": table}, "worker": "ok"}})

    with httpx.Client(transport=httpx.MockTransport(answer), base_url="http://calve") as client:
        running = demo.Demo(client, 40)
        running._look()
    assert running.figures.tables == {"shop.orders": {"rows": rows, "changes": 9}}


def test_a_plain_line() -> None:
    figures = Figures(200, acknowledged=7, visible=3, lag_s=0.94)
    figures.tables["shop.orders"] = {"rows": 2, "changes": 3}
    figures.reason = "because"
    assert line(figures) == "acknowledged=7  visible=3  waiting=4  lag=0.9 s  shop.orders=2 rows  because"


def test_the_view_on_a_terminal() -> None:
    figures = Figures(200, acknowledged=1234, visible=1200, lag_s=0.94, first_visible_s=9.5)
    figures.tables["shop.orders"] = {"rows": 1017, "changes": 1200}
    figures.reason = "Spark worker [red]starting"  # text of the server is not markup
    console = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
    console.print(demo._panel(figures, "http://127.0.0.1:8181", "calve tail shop.orders"))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    for part in (
        "http://127.0.0.1:8181  200 changes a second",
        "1,234",
        "first after 9.5 s",
        "0.9 s",
        "1,017",
        "Spark worker [red]starting",
        "calve tail shop.orders",
    ):
        assert part in shown


def test_the_commands_to_try_are_for_the_server_of_the_demo() -> None:
    here = demo.try_next("http://127.0.0.1:8181", with_token=False)
    assert '\n  calve query "SELECT status, count(*) FROM shop.orders GROUP BY 1"\n' in here
    assert "export" not in here
    elsewhere = demo.try_next("http://127.0.0.1:9000", with_token=True)
    lines = elsewhere.splitlines()
    assert lines[1:3] == ["  export CALVE_URI=http://127.0.0.1:9000", "  export CALVE_TOKEN=TOKEN"]
    assert lines[3:] == here.splitlines()[1:]
    assert max(map(len, lines)) <= 80, "a line that a terminal breaks cannot be copied"
