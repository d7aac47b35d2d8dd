"""A Spark standalone cluster from the pip package: a master and two nodes, each a child process.

with SparkCluster.started(folder) as cluster:
    Worker(stack, folder, master=cluster.address)
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyspark

from tests.harness.ports import free_port
from tests.harness.process import Child, children

LOCAL = "127.0.0.1"
START_S = 240
NODES = 2


class SparkCluster:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._port = free_port()
        home = Path(pyspark.__file__).parent
        words = [str(home / "bin" / "spark-class")]
        environment = os.environ | {
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": LOCAL,
            "SPARK_WORKER_DIR": str(folder / "work"),
            "SPARK_DAEMON_MEMORY": "256m",
        }
        master = ["org.apache.spark.deploy.master.Master", "--host", LOCAL, "--port", str(self._port)]
        master += ["--webui-port", str(free_port())]
        self._master = Child([*words, *master], log=folder / "master.log", environment=environment)
        self._nodes = [
            Child([*words, *self._node()], log=folder / f"node-{number}.log", environment=environment)
            for number in range(NODES)
        ]

    def _node(self) -> list[str]:
        words = ["org.apache.spark.deploy.worker.Worker", "--host", LOCAL, "--webui-port", str(free_port())]
        return [*words, "-c", "1", "-m", "2g", self.address]

    @classmethod
    @contextlib.contextmanager
    def started(cls, folder: Path) -> Iterator[SparkCluster]:
        cluster = cls(folder)
        try:
            cluster._master.start(lambda: _listens(cluster._port), timeout_s=START_S)
            for node in cluster._nodes:
                node.start(partial(_is_member, node), timeout_s=START_S)
            yield cluster
        finally:
            for child in (*cluster._nodes, cluster._master):
                child.kill()

    @property
    def address(self) -> str:
        return f"spark://{LOCAL}:{self._port}"

    @property
    def executors(self) -> int:
        """How many were started so far."""
        return sum(node.log.read_text().count("Asked to launch executor") for node in self._nodes)

    def kill_executor(self) -> None:
        """The one on the first node, with its Python processes."""
        for pid in children(self._nodes[0].pid):
            with contextlib.suppress(ProcessLookupError):  # it ended with its parent
                os.kill(pid, signal.SIGKILL)


def _is_member(node: Child) -> bool:
    return "Successfully registered with master" in node.log.read_text()


def _listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex((LOCAL, port)) == 0
