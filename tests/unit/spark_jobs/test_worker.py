"""The worker as a command: what it says and how it ends where Spark cannot run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_jobs.worker import NOT_POSSIBLE, _exists, _parser, _watch, main, s3_from
from tests.unit.spark_jobs.stub_server import refused, stub_server

ROOT = Path(__file__).resolve().parents[3]


def _run(uri: str = "http://127.0.0.1:9", **environment: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "spark_jobs.worker", "--uri", uri]
    return subprocess.run(
        words,
        env={**os.environ, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_without_its_jars_it_says_so_in_one_sentence(tmp_path: Path) -> None:
    ended = _run(CALVE_JARS=str(tmp_path))
    assert ended.returncode == NOT_POSSIBLE
    first, second = (json.loads(line) for line in ended.stdout.splitlines())
    assert first["event"] == "starting"
    assert second["event"] == "not-possible"
    assert "python -m spark_jobs.jars" in second["error"]
    assert ended.stderr.strip().count("\n") == 0


@pytest.mark.parametrize("credential", ["", "worker:wrong"])
def test_a_wrong_credential_is_told_before_spark_starts(credential: str) -> None:
    with stub_server() as stub:
        stub.otherwise = lambda _: (401, refused("who are you?", "NotAuthorizedException"))
        ended = _run(stub.url, CALVE_WORKER_CREDENTIAL=credential)
    assert ended.returncode == NOT_POSSIBLE
    told = json.loads(ended.stdout.splitlines()[-1])
    assert told["event"] == "not-possible"
    assert "set CALVE_WORKER_CREDENTIAL=NAME:SECRET" in told["error"]


def test_an_interrupt_while_spark_starts_is_a_stop(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("spark_jobs.worker.Server.check_credential", lambda _: None)
    monkeypatch.setattr("spark_jobs.worker.started", interrupted)
    assert main(["--uri", "http://127.0.0.1:9"]) == 0
    events = [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()]
    assert events == ["starting", "stopped"]


def test_the_name_has_a_random_end() -> None:
    names = [json.loads(_run(CALVE_JARS="/nowhere").stdout.splitlines()[0])["worker"] for _ in range(2)]
    assert len(set(names)) == 2
    assert all(name.startswith("w-") for name in names)


def test_the_object_store_comes_from_the_environment() -> None:
    assert s3_from({}) is None
    found = s3_from({"CALVE_S3_ENDPOINT": "http://x", "CALVE_S3_SECRET_ACCESS_KEY": "hidden"})
    assert found is not None
    assert (found.endpoint, found.region, found.path_style) == ("http://x", None, True)
    assert "hidden" not in repr(found)
    assert s3_from({"CALVE_S3_REGION": "eu"}) is None, "the server's settings always have one"
    other = s3_from({"CALVE_S3_ACCESS_KEY_ID": "key", "CALVE_S3_PATH_STYLE": "false"})
    assert other is not None
    assert not other.path_style


def test_settings_for_spark(capsys: pytest.CaptureFixture[str]) -> None:
    options = _parser().parse_args(["--uri", "x", "--conf", "a=b=c", "--conf", "d="])
    assert dict(options.conf) == {"a": "b=c", "d": ""}
    with pytest.raises(SystemExit):
        _parser().parse_args(["--uri", "x", "--conf", "nothing"])
    assert "nothing is not KEY=VALUE" in capsys.readouterr().err


def test_the_process_that_started_it_is_watched() -> None:
    assert not _watch(0)()
    assert not _watch(os.getppid())()
    assert not _watch(os.getpid())()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    gone = _watch(child.pid)
    assert not gone()
    child.communicate(b"\n")
    assert gone()
    assert not _exists(child.pid)
