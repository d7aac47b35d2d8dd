"""The first minutes on a machine with nothing on it: a minimal Debian, a clone, `make run`, `calve demo`.

It needs root and the network, and takes minutes. Everything runs in a mount and a process namespace of its
own, so that mounts and processes are gone when the test ends.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.harness.components import ROOT, program
from tests.harness.ports import free_port

PACKAGES = "ca-certificates,git,make,python3,python3-venv"
RELEASE = "bookworm"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
HOME = "/srv"
SETUP_S = 1800
# How this machine reaches package registries; everything else of its environment stays outside.
PASSED_ON = re.compile(
    r"(?i)(https?|no|all)_proxy|PIP_(INDEX_URL|EXTRA_INDEX_URL|TRUSTED_HOST|PROXY)|UV_.*INDEX.*"
)


class BareMachine:
    """A folder with a minimal Debian in it, in which commands run as if it were a machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self) -> None:
        bootstrap = [str(program("debootstrap")), "--variant=minbase", f"--include={PACKAGES}", RELEASE]
        subprocess.run([*bootstrap, str(self.folder)], check=True, timeout=SETUP_S)
        shutil.copy("/etc/resolv.conf", self.folder / "etc")
        # Debian's installer writes this file and debootstrap does not. The host name stays unknown.
        (self.folder / "etc" / "hosts").write_text("127.0.0.1 localhost\n")
        # A proxy that answers for the registries has its certificate among those of this machine.
        shutil.copy(CERTIFICATES, self.folder / CERTIFICATES.relative_to("/"))

    def command(self, words: str) -> list[str]:
        """`words` for a shell inside. The namespace ends with its first process."""
        inside = f"mount --rbind /dev {self.folder}/dev && exec chroot {self.folder} /bin/sh -c '{words}'"
        own = ["unshare", "--mount", "--pid", "--fork", "--kill-child", f"--mount-proc={self.folder}/proc"]
        environment = {name: value for name, value in os.environ.items() if PASSED_ON.fullmatch(name)}
        environment |= {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": HOME, "LANG": "C.UTF-8"}
        stated = [f"{name}={value}" for name, value in environment.items()]
        return [*own, "env", "--ignore-environment", *stated, "/bin/sh", "-c", inside]

    def run(self, words: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(words), capture_output=True, text=True, timeout=timeout_s, check=False
        )

    @contextlib.contextmanager
    def running(self, words: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
        with (
            log.open("wb") as output,
            subprocess.Popen(self.command(words), stdout=output, stderr=output) as child,
        ):
            try:
                yield child
            finally:
                child.kill()  # and with it everything that runs inside


@pytest.fixture
def machine(tmp_path: Path) -> BareMachine:
    folder = tmp_path / "machine"
    folder.mkdir()
    found = BareMachine(folder)
    found.install()
    return found


@pytest.mark.proof
def test_a_clone_on_a_bare_machine_lands_changes(machine: BareMachine, tmp_path: Path) -> None:
    bundle = machine.folder / "srv" / "calve.bundle"
    subprocess.run(["git", "bundle", "create", "--quiet", str(bundle), "HEAD"], cwd=ROOT, check=True)
    port = free_port()
    log = tmp_path / "make-run.log"
    words = f"cd {HOME} && git clone --quiet calve.bundle calve && cd calve && make run ARGS=--port={port}"
    with machine.running(words, log) as child:
        _wait_for_worker(f"http://127.0.0.1:{port}", child, log)
        demo = machine.run(
            f"cd {HOME}/calve && .venv/bin/calve demo --uri http://127.0.0.1:{port} --seconds 10", 300
        )
    printed = log.read_text()
    assert demo.returncode == 0, f"{demo.stdout}{demo.stderr}{printed}"
    assert re.search(r"^([\d,]+) changes acknowledged and \1 visible", demo.stdout, re.MULTILINE), demo.stdout
    assert re.search(r"^shop\.orders: [\d,]+ rows, from", demo.stdout, re.MULTILINE), demo.stdout
    for part in (
        "set-up: installing",
        "fetching iceberg-spark-runtime",
        f"listens on http://127.0.0.1:{port}",
    ):
        assert part in printed
    assert "Traceback" not in printed


def _wait_for_worker(url: str, child: subprocess.Popen[bytes], log: Path) -> None:
    until_s = time.monotonic() + SETUP_S
    state = "not reachable"
    while state != "ok":
        assert child.poll() is None, log.read_text()
        assert time.monotonic() < until_s, f"worker: {state}\n{log.read_text()}"
        time.sleep(1)
        with contextlib.suppress(httpx.TransportError):
            state = httpx.get(f"{url}/ready", timeout=30).json()["checks"].get("worker", "not ready")
