"""Log lines: their form, their fields, and the secrets that are not in them."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

from calve.telemetry import logs
from calve.telemetry.redaction import MASK, Redactor

SECRET = 'canary/+"\\ü=1234'


@pytest.fixture(autouse=True)
def _root_logger_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def logged(*, as_json: bool = True, message: str = "hello", **extra: Any) -> str:
    stream = io.StringIO()
    logs.configure(level="info", as_json=as_json, secrets=[SECRET], stream=stream)
    logging.getLogger("test").info(message, extra=extra)
    return stream.getvalue()


def test_a_json_line() -> None:
    line = json.loads(logged(table="a.b", count=3, nested={"x": [1, None, True]}))
    assert line.pop("ts").endswith("Z")
    assert line == {
        "level": "info",
        "message": "hello",
        "logger": "test",
        "table": "a.b",
        "count": 3,
        "nested": {"x": [1, None, True]},
    }


def test_a_text_line() -> None:
    line = logged(
        as_json=False, table="a.b", count=3, absent=None, words='a "b"', nested={"x": [1]}, empty=""
    )
    time_, _, rest = line.partition(" ")
    assert time_.endswith("Z")
    assert rest == 'INFO    hello table=a.b count=3 words="a \\"b\\"" nested={"x":[1]} empty=""\n'


def test_a_terminal_gets_the_time_of_day() -> None:
    stream = Terminal()
    logs.configure(level="debug", as_json=False, stream=stream)
    logging.getLogger("test").info("hello", extra={"table": "a.b"})
    logging.getLogger("test").debug("deep")
    first, second = stream.getvalue().splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} INFO    hello table=a\.b", first)
    assert second.endswith("DEBUG   deep logger=test")


def test_nothing_is_too_strange_for_a_line() -> None:
    line = json.loads(logged(message="half \ud800", number=2**70, key={1: b"x"}))
    assert line["message"] == "half \ud800"
    assert line["number"] == 2**70
    assert line["key"] == {"1": "b'x'"}


def test_the_request_id_comes_by_itself() -> None:
    token = logs.request_id.set("r-1")
    try:
        assert json.loads(logged())["request_id"] == "r-1"
    finally:
        logs.request_id.reset(token)


def test_a_traceback_is_one_field() -> None:
    stream = io.StringIO()
    logs.configure(level="info", as_json=True, secrets=[SECRET], stream=stream)
    try:
        raise ValueError(f"bad {SECRET}")
    except ValueError:
        logging.getLogger("test").exception("failed")
    line = json.loads(stream.getvalue())
    assert line["error"] == "ValueError"
    assert "test_logs.py" in line["traceback"]
    assert MASK in line["traceback"]
    assert SECRET not in line["traceback"]


def test_levels() -> None:
    stream = io.StringIO()
    logs.configure(level="warning", as_json=True, stream=stream)
    logging.getLogger("test").info("no")
    logging.getLogger("test").warning("yes")
    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == ["yes"]


@pytest.mark.parametrize("as_json", [True, False])
def test_a_known_secret_is_never_logged(as_json: bool) -> None:
    for line in (
        logged(as_json=as_json, message=f"with {SECRET} inside"),
        logged(as_json=as_json, value=SECRET),
        logged(as_json=as_json, value={"deep": [{"er": f"x{SECRET}x"}]}),
        logged(as_json=as_json, value=ValueError(SECRET)),
        logged(as_json=as_json, value={SECRET}),
    ):
        assert SECRET not in line
        assert json.dumps(SECRET)[1:-1] not in line
        assert "canary" not in line
        assert MASK in line


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer canary.canary",
        "authorization=Basic canary",
        "postgresql://user:canary@host/db",
        '{"client_secret": "canary"}',
        "grant_type=client_credentials&client_secret=canary&scope=x",
        "s3.secret-access-key=canary",
        "'s3.session-token': 'canary'",
        "AWS_SECRET_ACCESS_KEY=canary",
        "password: canary",
        "access_token=canary",
    ],
)
def test_what_looks_like_a_credential_is_masked(text: str) -> None:
    assert "canary" not in Redactor()(text)
    assert MASK in Redactor()(text)


def test_fields_with_a_telling_name_are_masked() -> None:
    fields = {"s3.secret-access-key": "canary", "password": ["canary"], "table": "a"}
    assert Redactor().value(fields) == {"s3.secret-access-key": MASK, "password": MASK, "table": "a"}


def test_plain_text_is_left_alone() -> None:
    for text in ("a bear in the woods", "http://host:8181/v1", "the password was wrong", "token expired"):
        assert Redactor()(text) == text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True
