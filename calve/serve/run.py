"""`calve serve`: listen, start one process or several, print what to try next, serve until told to stop."""

from __future__ import annotations

import contextlib
import logging
import socket

from calve import __version__
from calve.serve.ground import listen, prepare_home
from calve.serve.hints import address, hints, warn_if_not_ready
from calve.serve.server import CreateApp, ServerProcess
from calve.serve.spark_worker import missing
from calve.serve.workers import Supervisor
from calve.settings import Settings
from calve.telemetry import logs
from calve.telemetry.metrics import metrics

_log = logging.getLogger(__name__)


def serve(settings: Settings, create_app: CreateApp | None = None) -> int:
    """Run the server; the exit code. StartupError and CatalogError say why it could not start."""
    logs.configure(level=settings.log_level, as_json=settings.log_as_json, secrets=settings.secrets)
    _silence_uvicorn()
    metrics.gauge("calve_info", "The version of the server.", ("version",)).labels(__version__).set(1)
    with contextlib.closing(listen(settings.host, settings.port)) as listener:
        prepare_home(settings)
        # Imported before a fork, so that all workers share the memory of the code.
        factory = create_app or _application()

        with contextlib.ExitStack() as beside:

            def announce() -> None:
                _announce(settings, listener)
                if create_app is None:
                    uri = _own_address(listener)
                    warn_if_not_ready(uri)
                    if settings.worker:
                        _start_worker(settings, uri, beside)

            if settings.workers == 1:
                ServerProcess(settings, factory, announce).run(listener)
            else:
                Supervisor(settings, factory, listener, announce).run()
    return 0


def _own_address(listener: socket.socket) -> str:
    """Where processes of this machine reach the server."""
    host, port = listener.getsockname()[:2]
    here = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{here}]:{port}" if ":" in here else f"http://{here}:{port}"


def _start_worker(settings: Settings, uri: str, beside: contextlib.ExitStack) -> None:
    """Once the server answers: the worker asks it for work. It ends when `beside` does."""
    from calve.serve.spark_worker import SparkWorker, credentials, report_to_database

    worker = SparkWorker(settings, uri, credentials(settings), report_to_database(settings, uri))
    worker.start()
    beside.callback(worker.stop)


def _application() -> CreateApp:
    from calve.app import create_app

    return create_app


def _announce(settings: Settings, listener: socket.socket) -> None:
    port = int(listener.getsockname()[1])
    # Whoever read our output may be gone; the server is there for others.
    with contextlib.suppress(OSError):
        lacking = missing() if settings.worker else None
        print(hints(settings, port, lacking), flush=True)  # noqa: T201 - the one thing that the server says to a person
    _log.info(
        "listening",
        extra={"address": address(settings, port), "workers": settings.workers, "version": __version__},
    )


def _silence_uvicorn() -> None:
    """A start that fails is told in one sentence, by the command line."""
    told = ("Application startup failed", "Exception in 'lifespan' protocol")

    def keep(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(told)

    logging.getLogger("uvicorn.error").addFilter(keep)
