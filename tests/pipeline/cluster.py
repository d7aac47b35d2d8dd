"""A Spark standalone cluster from the pip package: a master and two nodes, each in a network namespace.

    with stack_with_cluster(stacks, folder) as (stack, cluster):
        Worker(stack, folder, master=cluster.master)

The driver and the S3 server listen on this machine's address in that network. Executors reach these two and
each other. They cannot reach the server and PostgreSQL, which listen on loopback, and do not see the driver's
temporary files.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyspark

from tests.harness.network import Host, PrivateNetwork
from tests.harness.ports import accepts, free_port
from tests.harness.process import Child, children
from tests.harness.s3 import S3Server
from tests.harness.stacks import Stack, Stacks
from tests.pipeline.worker import Master

START_S = 240
NODES = ("node-0", "node-1")
MASTER = "master"
EXECUTOR = b"CoarseGrainedExecutorBackend"
# `ip netns exec` starts a command with mounts of its own, so this one is not seen outside.
HIDE = 'mount --bind "$0" "$1" && shift && exec "$@"'


class SparkCluster:
    def __init__(self, folder: Path, network: PrivateNetwork) -> None:
        self._network = network
        self._port = free_port()
        self._folder = folder
        self._driver_folder = folder / "driver"
        self._driver_folder.mkdir(parents=True)
        self._master = self._daemon(MASTER, ["master.Master", "--port", str(self._port)])
        words = ["worker.Worker", "--cores", "1", "--memory", "2g", self.master.address]
        self._nodes = {name: self._daemon(name, words) for name in NODES}

    @classmethod
    @contextlib.contextmanager
    def started(cls, folder: Path) -> Iterator[SparkCluster]:
        with PrivateNetwork.created((MASTER, *NODES)) as network:
            cluster = cls(folder, network)
            host = network.hosts[MASTER].address
            try:
                cluster._master.start(lambda: accepts(cluster._port, host), timeout_s=START_S)
                cluster._start_nodes()
                yield cluster
            finally:
                for child in (*cluster._nodes.values(), cluster._master):
                    child.kill()

    def _start_nodes(self) -> None:
        """All at the same time: each waits for its own Java most of the time."""
        for node in self._nodes.values():
            node.start(lambda: True)
        until_s = time.monotonic() + START_S
        for node in self._nodes.values():
            while "Successfully registered with master" not in node.log.read_text():
                assert time.monotonic() < until_s, f"not a member after {START_S} s:\n{node.tail()}"
                time.sleep(0.05)

    @property
    def address(self) -> str:
        """Of this machine, as executors see it."""
        return self._network.address

    @property
    def master(self) -> Master:
        address = f"spark://{self._network.hosts[MASTER].address}:{self._port}"
        return Master(address, self.address, self._driver_folder)

    @property
    def executors(self) -> dict[str, int]:
        """How many each node has started so far."""
        return {
            name: node.log.read_text().count("Asked to launch executor") for name, node in self._nodes.items()
        }

    @property
    def misplaced_files(self) -> list[Path]:
        """What executors wrote at the path of the driver's folder, on their own hosts."""
        return [path for name in NODES for path in self._instead_of_driver_folder(name).iterdir()]

    def kill_executor(self, node: str, *, timeout_s: float = 120) -> None:
        """Kill the executor of a node with its Python processes; wait for one if there is none."""
        until_s = time.monotonic() + timeout_s
        while not (found := _executors(self._nodes[node].pid)):
            assert time.monotonic() < until_s, f"{node} has no executor after {timeout_s} s"
            time.sleep(0.05)
        for pid in found:
            for each in (pid, *children(pid)):
                with contextlib.suppress(ProcessLookupError):  # it ended with its parent
                    os.kill(each, signal.SIGKILL)

    def disconnect(self, node: str, lasts_s: float) -> None:
        """Nothing reaches the node, or comes from it, for some seconds."""
        host = self._network.hosts[node]
        host.disconnect()
        try:
            time.sleep(lasts_s)
        finally:
            host.connect()

    def _daemon(self, name: str, words: list[str]) -> Child:
        """Each host has folders of its own, also for temporary files, as a machine of its own would."""
        host = self._network.hosts[name]
        home, own = Path(pyspark.__file__).parent, self._folder / name
        instead = self._instead_of_driver_folder(name)
        for folder in (own / "tmp", instead):
            folder.mkdir(parents=True)
        main, *rest = words
        command = ["sh", "-c", HIDE, str(instead), str(self._driver_folder)]
        command += [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}"]
        command += ["--host", host.address, "--webui-port", str(free_port()), *rest]
        return Child(host.command(command), log=own / "daemon.log", environment=_environment(home, own, host))

    def _instead_of_driver_folder(self, name: str) -> Path:
        return self._folder / name / "driver"


def _environment(home: Path, own: Path, host: Host) -> dict[str, str]:
    return os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": host.address,
        "SPARK_WORKER_DIR": str(own / "work"),
        "SPARK_LOCAL_DIRS": str(own / "local"),
        "SPARK_DAEMON_MEMORY": "256m",
        "TMPDIR": str(own / "tmp"),
    }


@contextlib.contextmanager
def stack_with_cluster(
    stacks: Stacks, folder: Path, settings: Mapping[str, str] | None = None
) -> Iterator[tuple[Stack, SparkCluster]]:
    """PostgreSQL and S3, with an S3 server that the executors reach. `settings` are the server's."""
    with (
        SparkCluster.started(folder / "cluster") as cluster,
        S3Server.started(folder / "s3", cluster.address) as s3,
        stacks.started("postgres-s3", folder / "stack", settings, s3=s3) as stack,
    ):
        yield stack, cluster


def _executors(pid: int) -> list[int]:
    """The executors among the children of this process."""
    found = []
    for child in children(pid):
        with contextlib.suppress(OSError):  # it has just ended
            if EXECUTOR in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
    return found
