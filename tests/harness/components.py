"""Where the components of the tests are. `make components` puts them there; nothing is fetched here."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.harness.errors import ComponentMissing

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
JARS = CACHE / "jars"
_POSTGRES_BIN = Path("/usr/lib/postgresql")


def calve() -> Path:
    """The command as a user has it: beside the interpreter that runs the tests."""
    return _existing(Path(sys.executable).parent / "calve", "make setup")


def versitygw() -> Path:
    return _existing(CACHE / "bin" / "versitygw", "make components")


def debezium() -> Path:
    """The folder of Debezium Server."""
    return _existing(CACHE / "debezium" / "server", "make proof-components")


def debezium_java() -> Path:
    """The Java that it runs on, which is newer than Spark's."""
    return _existing(CACHE / "debezium" / "java" / "bin" / "java", "make proof-components")


def trino() -> Path:
    """The folder of the Trino server, with the Iceberg connector as its only plugin."""
    return _existing(CACHE / "trino" / "server", "make proof-components")


def trino_java() -> Path:
    """The Java that it runs on, which is newer than Spark's."""
    return _existing(CACHE / "trino" / "java" / "bin" / "java", "make proof-components")


def pyiceberg_suite() -> Path:
    """The folder of PyIceberg's own tests."""
    return _existing(CACHE / "pyiceberg" / "suite", "make proof-components")


def pyiceberg_suite_program(name: str) -> Path:
    """A program of the environment in which they run: `python` or `spark-submit`."""
    return _existing(CACHE / "pyiceberg" / "venv" / "bin" / name, "make proof-components")


def postgres(program: str) -> Path:
    """`initdb` or `postgres`: Debian keeps them out of the PATH, one folder for each major version."""
    on_path = shutil.which(program)
    if on_path is not None:
        return Path(on_path)
    found = sorted(_POSTGRES_BIN.glob(f"*/bin/{program}"), key=lambda path: int(path.parent.parent.name))
    if not found:
        raise ComponentMissing(f"{program} of PostgreSQL is not installed: run `make components`")
    return found[-1]


def mariadb(program: str) -> Path:
    """`mariadbd` or `mariadb-install-db`: Debian keeps the server where only root's PATH looks."""
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin")
    if found is None:
        raise ComponentMissing(f"{program} of MariaDB is not installed: run `make proof-components`")
    return Path(found)


def program(name: str) -> Path:
    """A program of the PATH, such as promtool or wrk."""
    found = shutil.which(name)
    if found is None:
        raise ComponentMissing(f"{name} is not installed: run `make components`")
    return Path(found)


def _existing(path: Path, remedy: str) -> Path:
    if not path.exists():
        raise ComponentMissing(f"{path} does not exist: run `{remedy}`")
    return path
