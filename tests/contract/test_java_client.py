"""Java's HTTP client, which Debezium Server uses: it offers HTTP/2 (`Upgrade: h2c`) with every request."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from spark_jobs.java import home
from tests.contract.ingest.api.api_server import event
from tests.harness.components import ROOT
from tests.harness.server import CalveServer

PROGRAM = ROOT / "tests" / "clients" / "PostChange.java"


@pytest.mark.parametrize("parser", ["zttp", "h11"])
def test_the_whole_body_of_a_change_arrives(tmp_path: Path, parser: str) -> None:
    with CalveServer.started(tmp_path / "server", {"CALVE_HTTP_PARSER": parser}) as server:
        send_twice(server, tmp_path / "small.json", range(1, 2))
        send_twice(server, tmp_path / "large.json", range(2, 5_002))


def send_twice(server: CalveServer, body: Path, numbers: range) -> None:
    changes = [event(number, after={"id": number, "text": "x" * 40}) for number in numbers]
    body.write_text(json.dumps(changes))
    command = [str(home() / "bin" / "java"), str(PROGRAM), f"{server.url}/cdc", str(body)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    answers = [line.split(" ", 2) for line in printed.splitlines()]
    assert [(status, version) for status, version, _ in answers] == [("202", "HTTP_1_1")] * 2
    first, second = (json.loads(text) for _, _, text in answers)
    assert (first["eventsAccepted"], second["duplicates"]) == (len(numbers), len(numbers))
