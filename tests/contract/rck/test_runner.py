"""The reading of what Java reports: a wrong reading here would let a failure of the kit pass unseen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contract.rck.parser import not_as_meant
from tests.contract.rck.runner import parse_reports

REPORT = """<testsuite name="org.x.Kit" tests="4">
  <testcase name="good" classname="org.x.Kit"/>
  <testcase name="bad" classname="org.x.Kit"><failure message="expected a&#10;but was b"/></testcase>
  <testcase name="broken" classname="org.x.Kit"><error>java.lang.Error: no
\tat org.x.Kit.broken(Kit.java:1)</error></testcase>
  <testcase name="left" classname="org.x.Kit"><skipped message="not here"/></testcase>
</testsuite>"""


def test_passed_failed_and_skipped_tests_are_distinguished(tmp_path: Path) -> None:
    (tmp_path / "TEST-org.x.Kit.xml").write_text(REPORT)
    outcome = parse_reports(tmp_path)
    assert outcome.passed == ["Kit.good"]
    assert outcome.failed == {"Kit.bad": "expected a but was b", "Kit.broken": "java.lang.Error: no"}
    assert outcome.skipped == {"Kit.left": "not here"}
    assert outcome.ran == 4
    assert outcome.of_class("Kit").ran == 4
    assert outcome.without_class("Kit").ran == 0


def test_no_report_means_that_nothing_ran(tmp_path: Path) -> None:
    assert parse_reports(tmp_path).ran == 0


@pytest.mark.parametrize(
    ("java", "document", "differs"),
    [
        ({"a": 1}, {"a": 1, "unknown": 2}, False),
        ({"a": 1, "statistics": []}, {"a": 1}, False),
        ({"a": 1, "b": "x"}, {"a": 1}, True),
        ({"a": [1, 2]}, {"a": [1]}, True),
        ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, True),
    ],
)
def test_java_may_know_less_but_nothing_else(java: Any, document: Any, differs: bool) -> None:
    assert bool(list(not_as_meant(java, document))) is differs
