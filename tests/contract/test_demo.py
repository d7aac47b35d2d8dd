"""`calve demo` where changes do not become rows, and where the server is away for a while."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.harness import components
from tests.harness.server import CalveServer, environment


@pytest.fixture
def server(tmp_path: Path) -> Iterator[CalveServer]:
    """A server without a worker."""
    with CalveServer.started(tmp_path / "server") as found:
        yield found


def demo(url: str, *more: str) -> subprocess.Popen[str]:
    words = [str(components.calve()), "demo", "--uri", url, "--rate", "40", *more]
    return subprocess.Popen(
        words, env=environment({}), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def acknowledged(output: str) -> int:
    found = re.search(r"^([\d,]+) changes acknowledged and 0 visible", output, re.MULTILINE)
    assert found, output
    return int(found[1].replace(",", ""))


def pending(url: str) -> int:
    tables = httpx.get(f"{url}/status", timeout=30).json()["landing"]["tables"]
    return sum(table["pending-events"] for table in tables.values())


def test_the_demo_reports_a_missing_worker(server: CalveServer) -> None:
    output, errors = demo(server.url, "--seconds", "2").communicate(timeout=120)
    lines = output.splitlines()
    assert lines[0] == f"Sending 40 changes a second to {server.url}"
    reason = "Spark worker not running: no worker has asked for work"
    assert re.match(r"acknowledged=1\d  visible=0  waiting=1\d  lag=-  ", lines[1])
    assert reason in lines[1]
    assert f"{acknowledged(output)} changes are not visible yet: {reason}" in output
    assert "`calve worker`" in output
    assert errors == ""


def test_ctrl_c_ends_it_with_a_summary(server: CalveServer) -> None:
    running = demo(server.url)
    assert running.stdout is not None
    while not running.stdout.readline().startswith("acknowledged="):
        assert running.poll() is None
    running.send_signal(signal.SIGINT)
    output, errors = running.communicate(timeout=60)
    assert running.returncode == 1, "not everything is visible"
    assert acknowledged(output) == pending(server.url)
    assert errors == ""


def test_a_server_that_crashes_and_comes_back_gets_everything_once(server: CalveServer) -> None:
    running = demo(server.url)
    assert running.stdout is not None
    while not running.stdout.readline().startswith("acknowledged="):
        assert running.poll() is None
    server.kill()
    while "the server does not answer" not in (line := running.stdout.readline()):
        assert running.poll() is None
    server.start()
    while "the server does not answer" in (line := running.stdout.readline()):
        assert running.poll() is None
    assert line.startswith("acknowledged=")
    running.send_signal(signal.SIGINT)
    output, _ = running.communicate(timeout=60)
    assert acknowledged(output) == pending(server.url)


def test_without_a_server_it_names_the_command() -> None:
    running = demo("http://127.0.0.1:1")
    output, errors = running.communicate(timeout=60)
    assert (running.returncode, output) == (1, "")
    assert errors == (
        "calve: No server answers at http://127.0.0.1:1. Start one with `make run`, or with `calve serve`.\n"
    )


def test_a_token_without_the_role_writer_is_told_so(tmp_path: Path) -> None:
    with CalveServer.started(tmp_path, {"CALVE_AUTH": "tokens"}) as server:
        created = server.command("principal", "create", "looker", "--role", "reader")
        form = {"grant_type": "client_credentials"}
        answer = httpx.post(
            f"{server.url}/v1/oauth/tokens", data=form, auth=("looker", created.stdout.strip())
        )
        running = demo(server.url, "--token", answer.json()["access_token"])
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 1
    assert errors.startswith(
        "calve: The server answered 403: the principal of this token needs the role writer"
    )


def test_the_demo_says_that_a_token_is_needed(tmp_path: Path) -> None:
    with CalveServer.started(tmp_path, {"CALVE_AUTH": "tokens"}) as server:
        running = demo(server.url)
        _, errors = running.communicate(timeout=60)
    assert running.returncode == 1
    assert errors.startswith("calve: The server answered 401: give a token with --token")
