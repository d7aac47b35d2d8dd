"""The client and its commands run where nothing of the server is installed."""

from __future__ import annotations

import subprocess
import sys

# Whatever is not in the standard library, not ours and not below httpx, click and rich, is not there.
PRELUDE = """
import sys
ALLOWED = {"httpx", "httpcore", "h11", "h2", "anyio", "sniffio", "certifi", "idna", "click", "rich",
           "pygments", "markdown_it", "mdurl", "typing_extensions", "socksio", "calve"}
class Absent:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in ALLOWED and top not in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
"""
QUERIES = ("query", "tables", "describe", "snapshots", "history", "diff", "rollback", "tail")
OTHERS = ("status", "load", "export", "flush")


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + code], capture_output=True, text=True, check=False, timeout=120
    )


def test_the_client_needs_httpx_alone() -> None:
    ended = run(
        "import calve\n"
        "try: calve.connect('http://127.0.0.1:1')\n"
        "except calve.errors.Unavailable as error: print(error)\n"
    )
    assert ended.stdout.startswith("No server answers at http://127.0.0.1:1."), ended.stderr


def test_importing_it_loads_no_server() -> None:
    code = "import sys, calve, calve.client\n"
    code += "heavy = {'fastapi', 'sqlalchemy', 'pyspark', 'pyarrow', 'pandas', 'polars', 'pydantic'}\n"
    code += "print(sorted((heavy | {'catalog', 'ingest', 'query'}) & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"
