"""A private network inside this machine: hosts in network namespaces, joined by a bridge.

    with PrivateNetwork.created(("master", "node-0")) as network:
        network.address                  # of this machine, as the hosts see it
        host = network.hosts["node-0"]
        Child(host.command(["spark-class", …]), …)
        host.disconnect(); host.connect()

The hosts reach each other and `network.address`, and nothing else: there is no route to any other address.
The bridge has a namespace of its own, so that firewall rules of this machine do not apply between the hosts.
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import json
import os
import random
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.harness.components import program
from tests.harness.errors import ComponentFailed
from tests.harness.process import is_alive

# RFC 2544 reserves these addresses for tests of network devices, so no real network has them.
ADDRESSES = ipaddress.ip_network("198.18.0.0/15")
PREFIX_BITS = 28  # 14 addresses for each network
NEEDED = "Network namespaces need Linux, root and iproute2"
_NAME = re.compile(r"calve-(\d+)-.+")
_numbers = itertools.count(1)
# Seeded by the system, so that two test processes on one machine choose different addresses.
_choose = random.SystemRandom()


@dataclass(frozen=True, slots=True)
class Host:
    """A network namespace with one address. `bridge` is the namespace of the bridge, `port` the host's port
    there.
    """

    namespace: str
    address: str
    bridge: str
    port: str

    def command(self, words: Sequence[str]) -> list[str]:
        """The command that runs these words on the host. `ip` replaces itself, so the process id stays."""
        return [str(program("ip")), "netns", "exec", self.namespace, *words]

    def disconnect(self) -> None:
        """Take the link down: packets in both directions are lost, and connections stay open."""
        _ip("-n", self.bridge, "link", "set", self.port, "down")

    def connect(self) -> None:
        _ip("-n", self.bridge, "link", "set", self.port, "up")


class PrivateNetwork:
    """The names contain the id of this process, so that two test runs do not collide."""

    def __init__(self, names: Sequence[str]) -> None:
        self._prefix = f"calve-{os.getpid()}-{next(_numbers)}"
        self._bridge = f"{self._prefix}-bridge"
        self._link = self._prefix.replace("calve-", "cv")  # at most 15 characters
        network = _free_network()
        own, *others = itertools.islice(network.hosts(), len(names) + 1)
        self.address = str(own)
        self.hosts = {
            name: Host(f"{self._prefix}-{name}", str(address), self._bridge, f"port{number}")
            for number, (name, address) in enumerate(zip(names, others, strict=True), 1)
        }

    @classmethod
    @contextlib.contextmanager
    def created(cls, names: Sequence[str]) -> Iterator[PrivateNetwork]:
        """A network with these hosts; it is removed at the end of the block."""
        _remove_those_of_dead_processes()
        network = cls(names)
        try:
            network._create()
            yield network
        finally:
            network._remove()

    def _create(self) -> None:
        _ip("netns", "add", self._bridge)
        _ip("-n", self._bridge, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self._bridge, "link", "set", "bridge", "up")
        _ip("link", "add", self._link, "type", "veth", "peer", "name", "port0", "netns", self._bridge)
        self._attach("port0")
        _ip("address", "add", f"{self.address}/{PREFIX_BITS}", "dev", self._link)
        _ip("link", "set", self._link, "up")
        for host in self.hosts.values():
            self._create_host(host)

    def _create_host(self, host: Host) -> None:
        inside = ("-n", host.namespace)
        _ip("netns", "add", host.namespace)
        _ip(*inside, "link", "set", "lo", "up")
        peer = ("peer", "name", host.port, "netns", self._bridge)
        _ip(*inside, "link", "add", "eth0", "type", "veth", *peer)
        self._attach(host.port)
        _ip(*inside, "address", "add", f"{host.address}/{PREFIX_BITS}", "dev", "eth0")
        _ip(*inside, "link", "set", "eth0", "up")

    def _attach(self, port: str) -> None:
        _ip("-n", self._bridge, "link", "set", port, "master", "bridge", "up")

    def _remove(self) -> None:
        """What was created of it. A link is removed with the namespace of either end, but not at once."""
        if Path("/sys/class/net", self._link).exists():
            _ip("link", "delete", self._link)
        for namespace in _namespaces():
            if namespace.startswith(f"{self._prefix}-"):
                _ip("netns", "delete", namespace)


def _free_network() -> ipaddress.IPv4Network:
    """A part of ADDRESSES that no interface of this machine has."""
    listed = json.loads(_ip("-json", "-4", "address"))
    used = [ipaddress.ip_address(found["local"]) for link in listed for found in link.get("addr_info", ())]
    for _ in range(200):
        first = int(ADDRESSES.network_address)
        offset = _choose.randrange(ADDRESSES.num_addresses) >> (32 - PREFIX_BITS) << (32 - PREFIX_BITS)
        network = ipaddress.IPv4Network((first + offset, PREFIX_BITS))
        if not any(address in network for address in used):
            return network
    raise ComponentFailed(f"{ADDRESSES} has no free network")


def _namespaces() -> list[str]:
    return [line.split()[0] for line in _ip("netns", "list").splitlines()]


def _remove_those_of_dead_processes() -> None:
    """A test process that was killed could not remove its own."""
    for namespace in _namespaces():
        matched = _NAME.fullmatch(namespace)
        if matched is not None and not is_alive(int(matched[1])):
            _ip("netns", "delete", namespace)


def _ip(*words: str) -> str:
    ended = subprocess.run([str(program("ip")), *words], capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise ComponentFailed(f"{NEEDED}. `ip {' '.join(words)}` failed: {ended.stderr.strip()}")
    return ended.stdout
