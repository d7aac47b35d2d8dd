"""The worker: a long-lived Spark driver that leases batches from a server and lands them.

    python -m spark_jobs.worker --uri http://127.0.0.1:8181

Credentials come from the environment: a token in CALVE_WORKER_TOKEN (or in the variable that --token-env
names), or a principal's `name:secret` in CALVE_WORKER_CREDENTIAL; the keys of an object store in CALVE_S3_*.
The worker writes one line of JSON to stdout for each event. Spark logs to stderr, from warnings up.

Exit codes: 0 after a requested stop, 70 if Spark died (start the worker again), 78 if it cannot run on this
machine.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import time
import uuid
from collections.abc import Callable, Mapping

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from spark_jobs.driver import started, warm_up
from spark_jobs.jars import JarsMissing
from spark_jobs.lease_loop import SPARK_DIED, Worker, log_event
from spark_jobs.messages import KeyFileSettings
from spark_jobs.server_client import CredentialRefused, Credentials, Server
from spark_jobs.session import S3Options, SparkUnavailable
from spark_jobs.slot_session import Stores

NOT_POSSIBLE = 78


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    # The random suffix keeps a worker that was wrongly taken for dead out of its successor's transactions.
    name = f"{re.sub(r'[^A-Za-z0-9._-]', '-', options.name)[:40]}-{uuid.uuid4().hex[:8]}"
    started_s = time.monotonic()
    log_event("starting", worker=name, master=options.master)
    credentials = Credentials(
        os.environ.get(options.token_env) or None, os.environ.get("CALVE_WORKER_CREDENTIAL") or None
    )
    server = Server(options.uri, credentials)
    try:
        server.check_credential()
        spark = started(options.uri, master=options.master, memory=options.memory, extra=_extra(options))
        warm_up(spark)
    except (SparkUnavailable, JarsMissing, CredentialRefused) as error:
        return _over(NOT_POSSIBLE, "not-possible", error)
    except (PySparkException, Py4JError, OSError) as error:
        return _over(SPARK_DIED, "spark-died", error)
    except KeyboardInterrupt:  # Ctrl-C while Spark starts
        log_event("stopped", worker=name)
        return 0
    stores = Stores(server, s3_from(os.environ))
    about = {"master": options.master, "slots": options.slots, "spark": spark.version, "pid": os.getpid()}
    if options.only != "landing":
        about["maintenance"] = "only" if options.only == "maintenance" else "also"
    worker = Worker(
        server,
        spark,
        stores,
        name,
        slots=options.slots,
        about=about,
        key_files=KeyFileSettings(folder=options.key_files, bytes_max=options.key_files_bytes),
        gone=_watch(options.parent_pid),
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: worker.stop())
    log_event("ready", worker=name, ms=round((time.monotonic() - started_s) * 1000))
    code = worker.run()
    log_event("stopped", worker=name)
    return code


def _extra(options: argparse.Namespace) -> dict[str, str]:
    """Parse Spark settings from the command line."""
    page = {"spark.ui.enabled": "true", "spark.ui.port": str(options.ui_port)} if options.ui_port else {}
    return page | dict(options.conf)


def _over(code: int, event: str, error: Exception) -> int:
    sentence = str(error).partition("\n")[0]
    log_event(event, error=sentence)
    sys.stderr.write(f"spark worker: {sentence}\n")
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m spark_jobs.worker",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--uri", required=True, help="address of the server")
    parser.add_argument("--token-env", default="CALVE_WORKER_TOKEN", help="variable that holds a token")
    parser.add_argument("--master", default="local[*]", help="where Spark runs")
    parser.add_argument("--memory", default="1g", help="memory of the Spark driver")
    parser.add_argument("--slots", type=int, default=2, help="number of batches to land at the same time")
    parser.add_argument("--name", default="w", help="how the worker's name begins")
    parser.add_argument("--parent-pid", type=int, default=0, help="stop when this process is gone")
    parser.add_argument("--only", choices=("landing", "maintenance"), help="lease only jobs of this kind")
    parser.add_argument("--ui-port", type=int, default=0, help="serve Spark's own page on this port")
    parser.add_argument("--key-files", default="", help="folder of key files on executors")
    parser.add_argument(
        "--key-files-bytes", type=int, default=KeyFileSettings().bytes_max, help="key files of one executor"
    )
    parser.add_argument(
        "--conf",
        type=_setting,
        action="append",
        default=[],
        help="a Spark setting, KEY=VALUE; it overrides the defaults",
    )
    return parser


def _setting(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not found or not key:
        raise argparse.ArgumentTypeError(f"{text} is not KEY=VALUE")
    return key, value


def s3_from(environment: Mapping[str, str]) -> S3Options | None:
    """Return how to reach the object store, from variables with the names of the server's settings."""
    given = {name: environment.get(f"CALVE_S3_{name.upper()}") or None for name in _S3_NAMES}
    # A region alone is not enough: the server's settings always have one.
    if given["endpoint"] is None and given["access_key_id"] is None:
        return None
    path_style = (environment.get("CALVE_S3_PATH_STYLE") or "true").lower() == "true"
    return S3Options(**given, path_style=path_style)


_S3_NAMES = ("endpoint", "region", "access_key_id", "secret_access_key")


def _watch(pid: int) -> Callable[[], bool]:
    """Return a function that says whether the process has ended."""
    if not pid:
        return lambda: False
    if os.getppid() == pid:
        return lambda: os.getppid() != pid
    return lambda: not _exists(pid)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # a JVM that hangs must not keep the worker running; it ends when its pipe to this process closes
    os._exit(code)
