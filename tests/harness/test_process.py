"""Child processes of the harness: they end when asked, when killed, and when the tests die."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.harness.components import ROOT
from tests.harness.errors import ComponentFailed
from tests.harness.process import Child

SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]


def _sleeper(folder: Path, command: list[str] | None = None) -> Child:
    child = Child(command or SLEEPER, log=folder / "sleeper.log")
    child.start(lambda: b"up" in child.log.read_bytes())
    return child


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def _wait_until_dead(pid: int) -> None:
    deadline = time.monotonic() + 30
    while _is_alive(pid):
        assert time.monotonic() < deadline, f"process {pid} is still alive"
        time.sleep(0.02)


def test_the_known_id_is_that_of_the_command_itself(tmp_path: Path) -> None:
    child = _sleeper(tmp_path)
    assert Path(f"/proc/{child.pid}/cmdline").read_bytes().startswith(sys.executable.encode())
    assert child.stop() == -signal.SIGTERM
    assert not child.running


def test_kill_reaches_the_processes_below(tmp_path: Path) -> None:
    script = (
        "import subprocess; p = subprocess.Popen(['sleep', '600']); print('up', p.pid, flush=True); p.wait()"
    )
    child = _sleeper(tmp_path, [sys.executable, "-c", script])
    grandchild = int(child.log.read_text().split()[1])
    assert _is_alive(grandchild)
    child.kill()
    _wait_until_dead(grandchild)


def test_a_process_that_ends_by_itself_shows_its_last_words(tmp_path: Path) -> None:
    child = Child([sys.executable, "-c", "raise SystemExit('port is taken')"], log=tmp_path / "x.log")
    with pytest.raises(ComponentFailed, match=r"(?s)x ended with 1.*port is taken"):
        child.start(lambda: False)


def test_it_ends_when_the_tests_are_killed(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from tests.harness.test_process import _sleeper\n"
        f"child = _sleeper(Path({str(tmp_path)!r})); print(child.pid, flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    with parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert _is_alive(pid)
        parent.kill()
    _wait_until_dead(pid)


def test_only_the_main_thread_may_start_one(tmp_path: Path) -> None:
    refused: list[str] = []

    def start() -> None:
        try:
            _sleeper(tmp_path)
        except ComponentFailed as error:
            refused.append(str(error))

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert refused == ["sleeper would end with this thread: start it from the main thread"]
