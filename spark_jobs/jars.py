"""The jars that Spark needs to speak to an Iceberg catalog: which ones, where they lie, how they get there.

    python -m spark_jobs.jars            fetch what is missing, print the folder

They are fetched once, at set-up, so that a session starts without a resolver and without a network. The
folder is the one that CALVE_JARS names, else `calve/jars` in the user's cache. Maven fetches them, by the
settings that the machine has for it; CALVE_MAVEN_REPOSITORY, the address of any repository in Maven's layout,
does without Maven, and so does Spark's own resolver where there is neither. A jar counts only if its bytes
are the expected ones.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path

DOWNLOAD_TIMEOUT_S = 60
_MAVEN_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"


_RESOLVE = """
import os, sys
from pyspark.sql import SparkSession
from spark_jobs import java
os.environ["JAVA_HOME"] = str(java.home())
settings = {"spark.jars.packages": sys.argv[1], "spark.jars.ivy": sys.argv[2], "spark.ui.enabled": "false"}
settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
builder = SparkSession.builder.master("local[1]")
for key, value in settings.items():
    builder = builder.config(key, value)
builder.getOrCreate().stop()
"""


class JarsMissing(Exception):
    """A jar is not there, or is not what it should be; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Jar:
    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def coordinates(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"

    @property
    def file(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def repository_path(self) -> str:
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file}"


# The newest Iceberg runtime is built for Spark 4.1, and fails on 4.2: move both together.
ICEBERG_RUNTIME = Jar(
    "org.apache.iceberg",
    "iceberg-spark-runtime-4.1_2.13",
    "1.12.0",
    "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
)
# S3FileIO and the AWS SDK below it, in one jar.
AWS_BUNDLE = Jar(
    "org.apache.iceberg",
    "iceberg-aws-bundle",
    "1.12.0",
    "dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957",
)
JARS = (ICEBERG_RUNTIME, AWS_BUNDLE)


def folder() -> Path:
    """Where the jars lie, whether or not they are there yet."""
    if chosen := os.environ.get("CALVE_JARS"):
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "calve" / "jars"


def installed() -> list[Path]:
    """The paths of all jars, for `spark.jars`. JarsMissing if one is not there."""
    paths = [folder() / jar.file for jar in JARS]
    absent = [path.name for path in paths if not path.is_file()]
    if absent:
        raise JarsMissing(f"{', '.join(absent)} not in {folder()}: run `python -m spark_jobs.jars`")
    return paths


def fetch() -> Path:
    """Bring every missing jar into the folder, whole or not at all. The folder."""
    into = folder()
    into.mkdir(parents=True, exist_ok=True)
    for jar in JARS:
        if not (into / jar.file).is_file():
            _fetch_one(jar, into)
    return into


def _fetch_one(jar: Jar, into: Path) -> None:
    # In the same folder, so that the last step is a rename and nobody ever sees half a jar.
    with tempfile.TemporaryDirectory(dir=into, prefix=".fetch-") as work:
        fetched = Path(work) / jar.file
        if base := os.environ.get("CALVE_MAVEN_REPOSITORY"):
            _download(f"{base.rstrip('/')}/{jar.repository_path}", fetched)
        elif maven := shutil.which("mvn"):
            _copy_by_maven(maven, jar, fetched.parent)
        else:
            _resolve_by_spark(jar, fetched, into)
        _check(jar, fetched)
        fetched.replace(into / jar.file)


def _download(address: str, to: Path) -> None:
    if not address.startswith(("https://", "http://")):
        raise JarsMissing(f"CALVE_MAVEN_REPOSITORY must begin with https:// or http://, not {address!r}")
    try:
        with urllib.request.urlopen(address, timeout=DOWNLOAD_TIMEOUT_S) as answer, to.open("wb") as out:  # noqa: S310
            shutil.copyfileobj(answer, out)
    except OSError as error:
        raise JarsMissing(f"cannot fetch {address}: {error}") from error


def _copy_by_maven(maven: str, jar: Jar, into: Path) -> None:
    command = [
        maven,
        "-B",
        "-ntp",
        "-q",
        _MAVEN_GOAL,
        f"-Dartifact={jar.coordinates}",
        f"-DoutputDirectory={into}",
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise JarsMissing(
            f"Maven could not fetch {jar.coordinates}:\n{ended.stdout[-2000:]}{ended.stderr[-2000:]}"
        )


def _resolve_by_spark(jar: Jar, to: Path, into: Path) -> None:
    """Spark has a resolver of its own; a session that starts with the jar has fetched it."""
    ivy = to.parent / "ivy"
    ended = subprocess.run(
        [sys.executable, "-c", _RESOLVE, jar.coordinates, str(ivy)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = ivy / "jars" / f"{jar.group}_{jar.file}"
    if not found.is_file():
        raise JarsMissing(
            f"cannot fetch {jar.coordinates}: install Maven, or set CALVE_MAVEN_REPOSITORY to the address"
            f" of a Maven repository, or put {jar.file} into {into} yourself\n{ended.stderr[-1000:]}"
        )
    found.replace(to)


def _check(jar: Jar, path: Path) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != jar.sha256:
        raise JarsMissing(f"{jar.coordinates} came with SHA-256 {found}, expected {jar.sha256}: not used")


def main() -> int:
    try:
        print(fetch())  # noqa: T201
    except JarsMissing as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
