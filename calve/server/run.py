"""`calve serve`: check that the server can start, listen, and run stock uvicorn until a stop is requested.

One server process runs here. Several are started and replaced by uvicorn's supervisor; each of them ends when
this process is gone. Everything that keeps a server from starting (the port, the home, the database, the
journal, the store) is tried here before uvicorn starts, so that it becomes one sentence (`StartupError`).
"""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import multiprocessing
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.server import HANDLED_SIGNALS
from uvicorn.supervisors import Multiprocess

from calve import __version__
from calve.server.banner import address, hints, warn_if_not_ready
from calve.server.spark_worker import missing
from calve.settings import Settings
from calve.startup import StartupError
from calve.telemetry import logs
from catalog.shutdown import stopping

if TYPE_CHECKING:
    from starlette.types import ASGIApp

BACKLOG = 2048
COLLECT_AFTER = (50_000, 20, 50)  # objects, then collections of the younger generation
GRACE_S = 5.0  # for the application's shutdown, after the time for requests in flight
WORKER_HEALTHCHECK_S = 20  # a busy machine may take long to start a process
METRICS_FOLDER = "metrics"

CreateApp = Callable[[Settings], "ASGIApp"]

_log = logging.getLogger(__name__)


def serve(
    settings: Settings, create_app: CreateApp | None = None, check: Callable[[Settings], None] | None = None
) -> int:
    """Run the server; the exit code. StartupError and CatalogError say why it could not start.

    Tests give an application of their own, and its `check` that runs before several processes start.
    """
    configure_logs(settings)
    with contextlib.closing(listen(settings.host, settings.port)) as listener:
        prepare_home(settings)
        # With port 0 the system has chosen one: query processes need to know it.
        settings = settings.model_copy(update={"port": int(listener.getsockname()[1])})
        if settings.workers > 1:
            share_metrics(settings)
        if settings.workers == 1:
            app = (create_app or _create_app)(settings)
            config = uvicorn_config(settings, partial(_prepared, settings, app))
        else:
            (check or _check_start)(settings)
            config = uvicorn_config(settings, partial(_worker_app, settings, create_app or _create_app))
        _announce(settings, listener)
        with contextlib.ExitStack() as stack:
            if create_app is None:
                uri = _own_address(listener)
                warn_if_not_ready(uri)
                if settings.worker:
                    stack.enter_context(_spark_worker(settings, uri))
            (_run_one if settings.workers == 1 else _run_several)(config, listener)
    return 0


# Imported when they are called, because prometheus_client reads its environment when it is imported, and so
# that a worker answers its supervisor before it imports the application.


def _create_app(settings: Settings) -> ASGIApp:
    from calve.app import create_app

    return create_app(settings)


def _check_start(settings: Settings) -> None:
    from calve.bootstrap import check_start

    check_start(settings)


def configure_logs(settings: Settings) -> None:
    logs.configure(level=settings.log_level, as_json=settings.log_as_json, secrets=settings.secrets)


def uvicorn_config(settings: Settings, create_app: Callable[[], ASGIApp]) -> uvicorn.Config:
    from calve.server.protocol import PROTOCOLS

    return uvicorn.Config(
        create_app,
        factory=True,
        http=PROTOCOLS[settings.http_parser],
        interface="asgi3",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        ws="websockets-sansio",
        # Compression would use about 44 KB for each connection, and decompress everything that a client
        # sends.
        ws_per_message_deflate=False,
        ws_max_size=2 * settings.message_bytes_max,
        workers=settings.workers,
        timeout_keep_alive=settings.keep_alive_timeout_s,
        timeout_graceful_shutdown=settings.shutdown_timeout_s,
        timeout_worker_healthcheck=WORKER_HEALTHCHECK_S,
    )


def _run_one(config: uvicorn.Config, listener: socket.socket) -> None:
    server = uvicorn.Server(config)
    try:
        # uvicorn raises a signal again after it has stopped. These handlers make the exit code 0.
        with _signals_handled(lambda _number, _frame: setattr(server, "should_exit", True)):
            server.run(sockets=[listener])
    except SystemExit:
        raise StartupError("the application did not start; the log says why.") from None


def _run_several(config: uvicorn.Config, listener: socket.socket) -> None:
    supervisor = Multiprocess(config, sockets=[listener])
    supervisor.run()
    if any(process.exitcode == STARTUP_FAILURE for process in supervisor.processes):
        raise StartupError("a server process did not start; the log says why.")


@contextlib.contextmanager
def _signals_handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number in HANDLED_SIGNALS}
    try:
        yield
    finally:
        for number, handler_before in before.items():
            signal.signal(number, handler_before)


# In each server process. uvicorn calls these after it has taken over the signals.


def _worker_app(settings: Settings, create_app: CreateApp) -> ASGIApp:
    """The application of one of several processes."""
    configure_logs(settings)
    stop_s = settings.shutdown_timeout_s + GRACE_S
    threading.Thread(target=_follow_parent, args=(stop_s,), name="follow-parent", daemon=True).start()
    return _prepared(settings, create_app(settings))


def _prepared(settings: Settings, app: ASGIApp) -> ASGIApp:
    from calve.telemetry.metrics import record_start

    record_start(settings.workers)
    for number in HANDLED_SIGNALS:
        signal.signal(number, _ending_long_polls(signal.getsignal(number)))
    _freeze_objects()
    return app


def _ending_long_polls(handler: object) -> Callable[[int, FrameType | None], None]:
    """Return uvicorn's handler, which first ends long polls: it would wait for them."""

    def handle(number: int, frame: FrameType | None) -> None:
        stopping.set()
        if callable(handler):
            handler(number, frame)

    return handle


def _follow_parent(stop_s: float) -> None:
    """End this process when its parent has ended, and at the latest `stop_s` after the stop signal."""
    parent = multiprocessing.parent_process()
    while not stopping.wait(0.5):
        if parent is not None and os.getppid() != parent.pid:
            os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(stop_s)
    os._exit(1)


def _freeze_objects() -> None:
    """Collect garbage less often, and exclude the objects that exist now.

    Python's collector runs after every 700 new objects, and a request of 1,000 events creates thousands that
    are all freed without it. It used a sixth of the processor time and caused pauses of 100 ms. Cycles are
    rare, so they can wait. docs/decisions/0018 has the figures.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


# Before uvicorn starts.


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Port 0 takes a free one."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as problem:
        raise StartupError(f"the host {host} cannot be resolved: {problem.strerror}.") from None
    family, kind, protocol, _, found_address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        # Closed connections of an earlier server may still exist. A server that still listens is an error
        # anyway.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(found_address)
        listener.listen(BACKLOG)
    except OSError as problem:
        listener.close()
        raise StartupError(_bind_error(host, port, problem)) from None
    listener.setblocking(False)
    return listener


def _bind_error(host: str, port: int, problem: OSError) -> str:
    if problem.errno == errno.EADDRINUSE:
        return f"port {port} on {host} is in use; stop the other program or choose another with --port."
    if problem.errno == errno.EACCES:
        return f"port {port} needs more rights than this user has; choose one above 1023 with --port."
    if problem.errno == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine; choose another with --host."
    return f"cannot listen on {host}:{port}: {problem.strerror}."


def uses_home(settings: Settings) -> bool:
    """Whether anything is stored under `home`."""
    locations = (
        settings.database.removeprefix("sqlite:///"),
        settings.warehouse_root.removeprefix("file://"),
    )
    return settings.workers > 1 or any(location.startswith(f"{settings.home}/") for location in locations)


def prepare_home(settings: Settings) -> None:
    """Create the home directory, and check that it is writable."""
    if not uses_home(settings):
        return
    try:
        settings.home.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=settings.home):
            pass
    except OSError as problem:
        raise StartupError(
            f"the folder {settings.home} cannot be written to ({problem.strerror}): choose another with "
            "--home."
        ) from None


def share_metrics(settings: Settings) -> None:
    """Give prometheus_client an empty folder in which the server processes keep their values."""
    folder = settings.home / METRICS_FOLDER
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)


def _announce(settings: Settings, listener: socket.socket) -> None:
    """Print the banner. The socket listens already: clients that connect now are answered when
    uvicorn runs.
    """
    port = int(listener.getsockname()[1])
    lacking = missing() if settings.worker else None
    with contextlib.suppress(OSError):  # the reader of stdout may have ended
        print(hints(settings, port, lacking), flush=True)  # noqa: T201 - this text is for a person
    _log.info(
        "listening",
        extra={"address": address(settings, port), "workers": settings.workers, "version": __version__},
    )


def _own_address(listener: socket.socket) -> str:
    """The address under which processes of this machine reach the server."""
    host, port = listener.getsockname()[:2]
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{here}]:{port}" if ":" in here else f"http://{here}:{port}"


@contextlib.contextmanager
def _spark_worker(settings: Settings, uri: str) -> Iterator[None]:
    """The Spark worker beside the server, which leases batches from this server."""
    from calve.server.spark_worker import SparkWorker, credentials, report_to_database

    worker = SparkWorker(settings, uri, credentials(settings), report_to_database(settings, uri))
    worker.start()
    try:
        yield
    finally:
        worker.stop()
