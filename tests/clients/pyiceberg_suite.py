"""Runs PyIceberg's own integration tests against a server.

They are written for the containers of PyIceberg's developers: a REST catalog on port 8181, an S3 server on
9000 with a bucket `warehouse`, Spark Connect on 15002, a Hive metastore. A run works on a copy in which
addresses and keys are replaced; nothing else is changed. There is no Hive here: its tests are left out.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from spark_jobs import java
from tests.harness import components
from tests.harness.ports import accepts, free_port
from tests.harness.process import Child
from tests.harness.s3 import S3Access
from tests.harness.stacks import Stack

SELECTED = ["-m", "integration", "-k", "not hive", "tests/integration"]
SUITE_S = 7000
OUTPUT_CHARACTERS_MAX = 4000
CONNECT_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
PROVISION = Path("dev", "provision.py")
BOTH_CATALOGS = "for catalog_name, catalog in catalogs.items():"
WITHOUT_HIVE = 'for catalog_name, catalog in [("rest", catalogs["rest"])]:'


@dataclass
class Counts:
    """What became of the tests that ran; the reasons are those of pytest."""

    passed: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


class PyIcebergSuite:
    """A copy of the suite that looks at one stack, with a Spark beside it."""

    def __init__(self, folder: Path, stack: Stack) -> None:
        assert stack.s3 is not None, "the suite keeps its tables in S3"
        self._stack = stack
        self._s3 = stack.s3
        self._folder = folder
        self._spark_port = free_port()
        shutil.copytree(components.pyiceberg_suite(), folder, dirs_exist_ok=True)
        for module in folder.rglob("*.py"):
            module.write_text(self._redirected(module.read_text()))
        provision = (folder / PROVISION).read_text()
        assert BOTH_CATALOGS in provision
        (folder / PROVISION).write_text(provision.replace(BOTH_CATALOGS, WITHOUT_HIVE))

    @contextlib.contextmanager
    def provisioned(self) -> Iterator[None]:
        """Spark runs until the end of the block; the tables that the tests read are made."""
        with self._spark():
            self._python(str(PROVISION), log="provision.log")
            yield

    def collected(self) -> list[str]:
        """The names of all tests that can be run here."""
        listed = self._python("-m", "pytest", "--collect-only", "-q", *SELECTED, log="collect.log")
        return [line for line in listed.splitlines() if "::" in line]

    def run(self, *, deselected: Iterable[str]) -> Counts:
        options = [f"--deselect={name}" for name in deselected]
        report = self._folder / "report.xml"
        words = ["-m", "pytest", "-q", *SELECTED, *options, f"--junitxml={report}"]
        self._python(*words, log="pytest.log", may_fail=True)
        return _counts(report)

    def _redirected(self, text: str) -> str:
        address = self._s3.endpoint.removeprefix("http://")
        for theirs, ours in {
            "http://localhost:8181": self._stack.url,
            "localhost:9000": address,
            "sc://localhost:15002": f"sc://127.0.0.1:{self._spark_port}",
            '"s3.access-key-id": "admin"': f'"s3.access-key-id": "{self._s3.access_key_id}"',
            '"s3.secret-access-key": "password"': f'"s3.secret-access-key": "{self._s3.secret_access_key}"',
        }.items():
            text = text.replace(theirs, ours)
        return text

    def _python(self, *words: str, log: str, may_fail: bool = False) -> str:
        """The output of Python with these words; a file has it too while the program runs."""
        path = self._folder / log
        with path.open("w") as output:
            ended = subprocess.run(
                [str(components.pyiceberg_suite_program("python")), *words],
                cwd=self._folder,
                env={**_environment(self._s3), **self._named_catalog()},
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=SUITE_S,
                check=False,
            )
        printed = path.read_text()
        assert may_fail or ended.returncode == 0, printed[-OUTPUT_CHARACTERS_MAX:]
        return printed

    def _named_catalog(self) -> dict[str, str]:
        """The catalog of the tests that a developer can point at a server; without it they are skipped."""
        return {"PYICEBERG_TEST_CATALOG": "calve", "PYICEBERG_CATALOG__CALVE__URI": self._stack.url}

    @contextlib.contextmanager
    def _spark(self) -> Iterator[None]:
        settings = [word for pair in self._spark_settings().items() for word in ("--conf", "=".join(pair))]
        submit = str(components.pyiceberg_suite_program("spark-submit"))
        child = Child(
            [submit, "--class", CONNECT_SERVER, *settings, "spark-internal"],
            log=self._folder / "spark.log",
            environment=_environment(self._s3),
            folder=self._folder,
        )
        child.start(lambda: accepts(self._spark_port), timeout_s=300)
        try:
            yield
        finally:
            child.stop()

    def _spark_settings(self) -> dict[str, str]:
        """Those of the suite's own container, without Hive."""
        catalog = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "rest",
            ".uri": self._stack.url,
            ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            ".cache-enabled": "false",
            **{f".{key}": value for key, value in self._s3.iceberg.items()},
        }
        return {
            "spark.master": "local[2]",
            "spark.driver.memory": "1g",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.extraClassPath": ":".join(map(str, components.JARS.glob("*.jar"))),
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self._spark_port),
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            **{f"spark.sql.catalog.rest{key}": value for key, value in catalog.items()},
            "spark.sql.defaultCatalog": "rest",
            "spark.sql.ansi.enabled": "false",
            "spark.sql.shuffle.partitions": "4",
            "spark.ui.enabled": "false",
        }


def _environment(s3: S3Access) -> dict[str, str]:
    return {
        **os.environ,
        "PATH": f"{components.pyiceberg_suite_program('python').parent}:{os.environ['PATH']}",
        "JAVA_HOME": str(java.home()),
        "AWS_ACCESS_KEY_ID": s3.access_key_id,
        "AWS_SECRET_ACCESS_KEY": s3.secret_access_key,
        "AWS_REGION": s3.region,
    }


def _counts(report: Path) -> Counts:
    counts = Counts()
    # The report comes from the run just ended, not from outside: the plain parser is safe here.
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"
        failure = case.find("failure") if case.find("failure") is not None else case.find("error")
        skip = case.find("skipped")
        if failure is not None:
            counts.failed[name] = (failure.get("message") or "")[:600]
        elif skip is not None:
            counts.skipped[name] = skip.get("message") or ""
        else:
            counts.passed += 1
    return counts
