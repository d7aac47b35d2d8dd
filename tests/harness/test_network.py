"""The private network of the harness: which addresses its hosts reach, and that it is removed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.harness.components import ROOT, program
from tests.harness.network import NEEDED, Host, PrivateNetwork

CONNECT = """
import socket, sys
socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3]))
"""
CREATE = """
import time
from tests.harness.network import PrivateNetwork
with PrivateNetwork.created(("one",)):
    print("created", flush=True)
    time.sleep(600)
"""


def _reaches(host: Host, address: str, port: int, *, timeout_s: float = 20) -> bool:
    command = host.command([sys.executable, "-c", CONNECT, address, str(port), str(timeout_s)])
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _existing(pid: int) -> list[str]:
    """The namespaces and links of a process's networks."""
    ip = [str(program("ip")), "netns", "list"]
    listed = subprocess.run(ip, capture_output=True, text=True, check=True).stdout.split()
    links = [path.name for path in Path("/sys/class/net").iterdir()]
    return [name for name in (*listed, *links) if name.startswith((f"calve-{pid}-", f"cv{pid}-"))]


def test_hosts_reach_this_machine_at_its_address_in_the_network_alone() -> None:
    with PrivateNetwork.created(("one", "two")) as network:
        with socket.create_server((network.address, 0)) as server:
            port = server.getsockname()[1]
            assert all(_reaches(host, network.address, port) for host in network.hosts.values())
        with socket.create_server(("127.0.0.1", 0)) as server:
            assert not _reaches(network.hosts["one"], "127.0.0.1", server.getsockname()[1])


def test_a_host_that_is_disconnected_is_reached_again_later() -> None:
    with (
        PrivateNetwork.created(("one", "two")) as network,
        socket.create_server((network.address, 0)) as server,
    ):
        port = server.getsockname()[1]
        one, two = network.hosts.values()
        one.disconnect()
        assert not _reaches(one, network.address, port, timeout_s=0.5)
        assert _reaches(two, network.address, port)
        one.connect()
        assert _reaches(one, network.address, port)


def test_two_networks_have_nothing_in_common() -> None:
    with PrivateNetwork.created(("one",)) as first, PrivateNetwork.created(("one",)) as second:
        assert first.address != second.address
        with socket.create_server((first.address, 0)) as server:
            port = server.getsockname()[1]
            assert _reaches(first.hosts["one"], first.address, port)
            assert not _reaches(second.hosts["one"], first.address, port, timeout_s=0.5)


def test_a_network_is_removed_after_a_failure() -> None:
    def fail() -> None:
        assert _existing(os.getpid())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), PrivateNetwork.created(("one",)):
        fail()
    assert _existing(os.getpid()) == []


def test_the_network_of_a_process_that_was_killed_is_removed_by_the_next() -> None:
    with subprocess.Popen([sys.executable, "-c", CREATE], cwd=ROOT, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"created\n"
        other.send_signal(signal.SIGKILL)
    assert _existing(other.pid)
    with PrivateNetwork.created(("one",)):
        deadline = time.monotonic() + 30
        while _existing(other.pid):  # the kernel removes links a moment after their namespace
            assert time.monotonic() < deadline, _existing(other.pid)
            time.sleep(0.02)


def test_the_error_without_the_rights_of_root_says_what_is_needed() -> None:
    lost = "-net_admin,-sys_admin"
    without = [str(program("setpriv")), f"--bounding-set={lost}", f"--inh-caps={lost}", "--"]
    ended = subprocess.run(
        [*without, sys.executable, "-c", CREATE], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert NEEDED in ended.stderr
