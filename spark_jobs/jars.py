"""Find and download the jars that Spark needs to use an Iceberg catalog.

    python -m spark_jobs.jars            download the missing ones, print the folder

The jars are downloaded once, at set-up, so that a session starts without a resolver and without a network.
The folder is the one that CALVE_JARS names, else `calve/jars` in the user's cache.

CALVE_MAVEN_REPOSITORY is the address of any repository in Maven's layout. Without it, Maven downloads the
jars with the settings of this machine, or Spark's resolver does where there is no Maven. Both run on Java,
which may not trust a certificate that the system and pip trust. If they fail, their output names the
repositories that they tried, and Python downloads from there (download.py). A jar is used only if its SHA-256
is the expected one.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from spark_jobs import java
from spark_jobs.download import DownloadFailed, download

RESOLVER_TIMEOUT_S = 600
_MAVEN_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
_MAVEN_TRIED = re.compile(r"from/to \S+ \((https?://[^\s)]+)\)")

_RESOLVE = """
import sys
from pyspark.sql import SparkSession
settings = {"spark.jars.packages": sys.argv[1], "spark.jars.ivy": sys.argv[2], "spark.ui.enabled": "false"}
settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
builder = SparkSession.builder.master("local[1]")
for key, value in settings.items():
    builder = builder.config(key, value)
builder.getOrCreate().stop()
"""


class JarsMissing(Exception):
    """A jar is missing or has the wrong checksum; the message says what to do."""


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
    """Return the folder of the jars, whether or not it exists."""
    if chosen := os.environ.get("CALVE_JARS"):
        return Path(chosen)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "calve" / "jars"


def installed() -> list[Path]:
    """Return the paths of all jars, for `spark.jars`. JarsMissing if one is missing."""
    paths = [folder() / jar.file for jar in JARS]
    absent = [path.name for path in paths if not path.is_file()]
    if absent:
        raise JarsMissing(
            "jars missing, run `make setup` or `python -m spark_jobs.jars`"
            f" ({', '.join(absent)} not in {folder()})"
        )
    return paths


def fetch() -> Path:
    """Download every missing jar into the folder, and return the folder. A partial download is never
    visible.
    """
    into = folder()
    into.mkdir(parents=True, exist_ok=True)
    fetcher = _Fetcher()
    for jar in JARS:
        if (into / jar.file).is_file():
            continue
        _report(f"fetching {jar.file}")
        # In the same folder, so that the last step is an atomic rename.
        with tempfile.TemporaryDirectory(dir=into, prefix=".fetch-") as work:
            fetched = Path(work) / jar.file
            fetcher.fetch(jar, fetched)
            _check(jar, fetched)
            fetched.replace(into / jar.file)
    return into


@dataclass(slots=True)
class _Fetcher:
    """Downloads one jar after another. A repository that served one jar is tried first for the next."""

    repositories: list[str] = field(default_factory=list)

    def fetch(self, jar: Jar, to: Path) -> None:
        failures: list[str] = []
        if chosen := os.environ.get("CALVE_MAVEN_REPOSITORY"):
            fetched = self._download([chosen], jar, to, failures)
        else:
            fetched = self._download(self.repositories, jar, to, failures) or self._resolve(jar, to, failures)
        if not fetched:
            raise JarsMissing(
                f"cannot fetch {jar.coordinates} ({'; '.join(failures)}): set CALVE_MAVEN_REPOSITORY to the"
                " address of a Maven repository that this machine can reach, or put"
                f" {jar.file} into {folder()} yourself"
            )

    def _resolve(self, jar: Jar, to: Path, failures: list[str]) -> bool:
        for name, report in _resolvers(jar, to):
            if to.is_file():
                return True
            failures.append(f"{name}: {_cause(report)}")
            if self._download(repositories_tried(report, jar), jar, to, failures):
                return True
        return False

    def _download(self, repositories: list[str], jar: Jar, to: Path, failures: list[str]) -> bool:
        for repository in repositories:
            try:
                download(f"{repository.rstrip('/')}/{jar.repository_path}", to)
            except DownloadFailed as error:
                failures.append(f"Python: {error}")
            else:
                self.repositories = [repository]
                return True
        return False


def _resolvers(jar: Jar, to: Path) -> Iterator[tuple[str, str]]:
    """Let each resolver of this machine write the jar to `to`. Yields the resolver's name and its output."""
    if maven := shutil.which("mvn"):
        options = ["-B", "-ntp", "-q", f"-Dartifact={jar.coordinates}", f"-DoutputDirectory={to.parent}"]
        yield "Maven", _run([maven, _MAVEN_GOAL, *options])
    try:
        # With an address, Spark does not look up this machine's host name, which may not resolve.
        environment = {"SPARK_LOCAL_IP": "127.0.0.1", **os.environ, "JAVA_HOME": str(java.home())}
    except java.NoJava as error:
        yield "Spark's resolver", str(error)
        return
    # A session that starts with the jar has downloaded it.
    ivy = to.parent / "ivy"
    report = _run([sys.executable, "-c", _RESOLVE, jar.coordinates, str(ivy)], environment)
    found = ivy / "jars" / f"{jar.group}_{jar.file}"
    if found.is_file():
        found.replace(to)
    yield "Spark's resolver", report


def _run(command: list[str], environment: dict[str, str] | None = None) -> str:
    try:
        ended = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=RESOLVER_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return f"no result within {RESOLVER_TIMEOUT_S} s"
    return ended.stdout + ended.stderr


def repositories_tried(report: str, jar: Jar) -> list[str]:
    """Return the addresses of the repositories in a resolver's output, in its order."""
    by_file = re.compile(rf"(https?://\S+?)/{re.escape(jar.repository_path)}")
    return list(dict.fromkeys([*by_file.findall(report), *_MAVEN_TRIED.findall(report)]))


def _cause(report: str) -> str:
    """Return the reason in a resolver's output: one line, no stack trace."""
    lines = [line.strip().removeprefix("[ERROR] ") for line in report.splitlines() if line.strip()]
    for words in ("Server access error", "Could not transfer", "Caused by: ", "not found"):
        if found := next((line for line in lines if words in line), None):
            return found[:400]
    return lines[-1][:400] if lines else "no report"


def _check(jar: Jar, path: Path) -> None:
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != jar.sha256:
        raise JarsMissing(f"{jar.coordinates} came with SHA-256 {found}, expected {jar.sha256}: not used")


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201


def main() -> int:
    try:
        print(fetch())  # noqa: T201
    except JarsMissing as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
