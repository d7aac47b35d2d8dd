"""A Maven repository behind HTTPS whose certificate neither Java nor Python trusts by itself."""

from __future__ import annotations

import contextlib
import http.server
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Repository:
    folder: Path
    address: str
    authority: Path  # the certificate of the private authority

    def put(self, path: str, data: bytes) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        pass


@contextlib.contextmanager
def https_repository(folder: Path) -> Iterator[Repository]:
    served = folder / "repository"
    served.mkdir(parents=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(served)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*_certificate(folder))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield Repository(served, f"https://127.0.0.1:{server.server_port}", folder / "authority.pem")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _certificate(folder: Path) -> tuple[Path, Path]:
    """A server certificate and its key, signed by an authority of its own."""
    new = ["openssl", "req", "-newkey", "rsa:2048", "-nodes"]
    _run([*new, "-x509", "-days", "2", "-subj", "/CN=A private authority"], "authority", folder)
    _run([*new, "-subj", "/CN=127.0.0.1"], "server", folder)
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    sign = ["openssl", "x509", "-req", "-in", "server.pem", "-out", "signed.pem", "-days", "2"]
    sign += ["-CA", "authority.pem", "-CAkey", "authority.key", "-CAcreateserial", "-extfile", "names"]
    subprocess.run(sign, cwd=folder, capture_output=True, check=True)
    return folder / "signed.pem", folder / "server.key"


def _run(command: list[str], name: str, folder: Path) -> None:
    files = ["-keyout", f"{name}.key", "-out", f"{name}.pem"]
    subprocess.run([*command, *files], cwd=folder, capture_output=True, check=True)
