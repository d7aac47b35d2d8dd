"""Runs Iceberg's REST compatibility kit against a server and tells what came out.

    python -m tests.contract.rck.runner http://127.0.0.1:8181/ [--warehouse main] [--test CLASS#METHOD]

`run_kit` needs an empty store: the kit refuses one that holds its namespaces, and leaves some behind. The
server and the kit must share one disk, because tests write manifests, and move a metadata file, below the
table's location. A run that found nothing to run looks like success to Maven: compare `Outcome.ran`.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from tests.contract.rck import maven

WIDER = "NestedAndSlashedCatalogTests"
WIDER_TESTS = (
    "testListNestedNamespaces",
    "testDropNamespaceWithNestedNamespace",
    "testNamespaceWithSlash",
    "testTableNameWithSlash",
)

REASON_CHARACTERS_MAX = 600


@dataclass
class Outcome:
    """Names are `Class.method`, as JUnit reports them; reasons are the first line of what was said."""

    passed: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def ran(self) -> int:
        return len(self.passed) + len(self.skipped) + len(self.failed)

    def of_class(self, name: str) -> Outcome:
        return self._where(lambda test: test.startswith(f"{name}."))

    def without_class(self, name: str) -> Outcome:
        return self._where(lambda test: not test.startswith(f"{name}."))

    def report(self) -> str:
        counts = f"{len(self.passed)} passed, {len(self.skipped)} skipped, {len(self.failed)} failed"
        lines = [f"{self.ran} ran: {counts}"]
        lines += [f"  FAILED {name}: {reason}" for name, reason in sorted(self.failed.items())]
        lines += [f"  skipped {name}: {reason}" for name, reason in sorted(self.skipped.items())]
        return "\n".join(lines)

    def _where(self, keep: Callable[[str], bool]) -> Outcome:
        return Outcome(
            [name for name in self.passed if keep(name)],
            {name: reason for name, reason in self.skipped.items() if keep(name)},
            {name: reason for name, reason in self.failed.items() if keep(name)},
        )


def run_kit(
    uri: str,
    work: Path,
    *,
    warehouse: str = "main",
    tests: str | None = None,
    properties: Mapping[str, str] | None = None,
) -> Outcome:
    """`tests` narrows the run in surefire's notation; `properties` are further switches of the kit."""
    settings = {"rck.uri": uri, "rck.warehouse": warehouse, **(properties or {})}
    if tests is not None:
        settings["rck.tests"] = tests
    maven.run("test", work, settings)
    return parse_reports(work / "reports")


def parse_reports(folder: Path) -> Outcome:
    outcome = Outcome()
    for file in sorted(folder.glob("TEST-*.xml")):
        for name, case in _cases(file):
            failure = case.find("failure") if case.find("failure") is not None else case.find("error")
            skip = case.find("skipped")
            if failure is not None:
                outcome.failed[name] = _reason(failure)
            elif skip is not None:
                outcome.skipped[name] = _reason(skip)
            else:
                outcome.passed.append(name)
    return outcome


def _cases(file: Path) -> Iterator[tuple[str, ElementTree.Element]]:
    # The reports come from the Maven run just ended, not from outside: the plain parser is safe here.
    for case in ElementTree.parse(file).getroot().iter("testcase"):
        yield f"{case.get('classname', '').rsplit('.', 1)[-1]}.{case.get('name', '')}", case


def _reason(element: ElementTree.Element) -> str:
    said = element.get("message") or element.text or ""
    words = itertools.takewhile(
        lambda line: not line.lstrip().startswith(("at ", "Caused by:")), said.splitlines()
    )
    return " ".join(" ".join(words).split())[:REASON_CHARACTERS_MAX] or "no message"


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("uri")
    arguments.add_argument("--warehouse", default="main")
    arguments.add_argument(
        "--test", help="in surefire's notation, such as RESTCompatibilityKitCatalogTests#testAppend"
    )
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="calve-rck-") as work:
        outcome = run_kit(given.uri, Path(work), warehouse=given.warehouse, tests=given.test)
    print(outcome.report())
    return 1 if outcome.failed or not outcome.ran else 0


if __name__ == "__main__":
    sys.exit(main())
