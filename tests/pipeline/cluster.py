"""A Spark standalone cluster from the pip package: a master and a worker, each a child process.

with SparkCluster.started(folder) as cluster:
    Worker(stack, folder, master=cluster.address)
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pyspark

from tests.harness.ports import free_port
from tests.harness.process import Child

LOCAL = "127.0.0.1"
START_S = 240


class SparkCluster:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._port, self._page = free_port(), free_port()
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
        worker = ["org.apache.spark.deploy.worker.Worker", "--host", LOCAL, "--webui-port", str(self._page)]
        worker += ["-c", "2", "-m", "2g", self.address]
        self._master = Child([*words, *master], log=folder / "master.log", environment=environment)
        self._worker = Child([*words, *worker], log=folder / "node.log", environment=environment)

    @classmethod
    @contextlib.contextmanager
    def started(cls, folder: Path) -> Iterator[SparkCluster]:
        cluster = cls(folder)
        try:
            cluster._master.start(lambda: _listens(cluster._port), timeout_s=START_S)
            cluster._worker.start(cluster._is_member, timeout_s=START_S)
            yield cluster
        finally:
            cluster._worker.kill()
            cluster._master.kill()

    @property
    def address(self) -> str:
        return f"spark://{LOCAL}:{self._port}"

    @property
    def executors(self) -> int:
        """How many were started so far."""
        return self._worker.log.read_text().count("Asked to launch executor")

    def _is_member(self) -> bool:
        return "Successfully registered with master" in self._worker.log.read_text()


def _listens(port: int) -> bool:
    with socket.socket() as connection:
        return connection.connect_ex((LOCAL, port)) == 0
