"""The client and its commands run where nothing of the server is installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Whatever is not in the standard library, not ours and not below httpx, click and rich, is not there.
PRELUDE = """
import sys

import pytest
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


@pytest.mark.parametrize("name", [*QUERIES, *OTHERS])
def test_commands_for_asking_run_without_the_server(name: str) -> None:
    ended = run(f"import sys; from calve.cli import main; sys.exit(main([{name!r}, '--help']))\n")
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_command_of_the_server_says_what_to_install() -> None:
    ended = run("import sys; from calve.cli import main; sys.exit(main(['serve']))\n")
    assert ended.returncode == 1
    assert ended.stderr.endswith("is not installed: pip install 'calve[server]'.\n")
