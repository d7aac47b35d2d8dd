"""Download a file over HTTPS with the certificates and the proxy that pip would use.

Certificates: those of the system (including SSL_CERT_FILE and SSL_CERT_DIR), those of certifi if it is
installed, and the file that PIP_CERT, REQUESTS_CA_BUNDLE or pip's configuration names. Proxy: pip's setting,
or HTTPS_PROXY, HTTP_PROXY and NO_PROXY.
"""

from __future__ import annotations

import http.client
import os
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from functools import cache
from pathlib import Path

TIMEOUT_S = 60


class DownloadFailed(Exception):
    """The download failed; the message has the address and the reason."""


def download(address: str, to: Path) -> None:
    """Write the file at `address` to the path `to`."""
    if not address.startswith(("https://", "http://")):
        raise DownloadFailed(f"an address must begin with https:// or http://: {address!r}")
    try:
        opener = urllib.request.build_opener(_proxies(), urllib.request.HTTPSHandler(context=_trusted()))
        with opener.open(address, timeout=TIMEOUT_S) as response, to.open("wb") as file:
            shutil.copyfileobj(response, file)
    except (OSError, http.client.HTTPException) as error:
        raise DownloadFailed(f"{address}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.URLError) and not isinstance(error, urllib.error.HTTPError):
        return str(error.reason)
    return str(error)


def _trusted() -> ssl.SSLContext:
    context = ssl.create_default_context()
    try:
        import certifi
    except ImportError:  # without certifi, the certificates of the system are used
        pass
    else:
        context.load_verify_locations(certifi.where())
    for named in (os.environ.get("REQUESTS_CA_BUNDLE"), pip_settings().get("cert")):
        if named:
            folder = Path(named).is_dir()
            context.load_verify_locations(cafile=None if folder else named, capath=named if folder else None)
    return context


def _proxies() -> urllib.request.ProxyHandler:
    proxy = pip_settings().get("proxy")
    if not proxy:
        return urllib.request.ProxyHandler()  # from the environment
    address = proxy if "://" in proxy else f"http://{proxy}"
    return urllib.request.ProxyHandler({"http": address, "https": address})


@cache
def pip_settings() -> dict[str, str]:
    """Return the settings in pip's files and PIP_* variables, which override the files; empty without pip."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603
    found: dict[str, str] = {}
    for line in sorted(listed.splitlines(), key=lambda line: line.startswith(":env:")):
        name, _, value = line.partition("=")
        if name.startswith((":env:.", "global.", "install.")):
            found[name.rpartition(".")[2]] = value.strip("'\"")
    return found
