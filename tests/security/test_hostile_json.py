"""Bodies and queries that no client sends, on every operation: refused or harmless, never a 5xx."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest

from tests.harness.rest import Rest, uuid7
from tests.harness.stacks import Stack
from tests.security.answers import assert_error, is_error
from tests.security.entry_points import Lake
from tests.security.requests_of_operations import CATALOG, Maker, Request, Served

# Operations that read their body. An absent one means something to `undrop` only. Table functions that read
# or write data files need real storage, which the recorded server does not have.
ON_REAL_STORAGE = {"appendFiles", "overwriteFiles", "exportTable"}
WITHOUT_BODY = {
    "compactTable",
    "archiveTable",
    "rewriteManifests",
    "expireTable",
    "removeOrphans",
    "testWebhook",
}
WITH_BODY = [
    served
    for served in CATALOG
    if served.method in ("POST", "PUT")
    and served.id not in {"unregisterTable", "publishTransaction"} | ON_REAL_STORAGE | WITHOUT_BODY
]
OPTIONAL_BODY = {"undrop", "resumeWebhook"}


def _nested(depth: int, opening: str = '{"a":', closing: str = "}") -> bytes:
    return (opening * depth + "1" + closing * depth).encode()


# None of these is JSON, or not JSON that this server reads.
BROKEN = {
    "half": b"{",
    "word": b"yes",
    "comma": b'{"a": 1,}',
    "single quotes": b"{'a': 1}",
    "comment": b'{"a": 1} // x',
    "rest": b'{"a": 1} {"b": 2}',
    "control character": b'{"a": "\x01"}',
    "nul": b'{"a": "\x00"}',
    "nul behind": b'{"a": 1}\x00',
    "bad utf-8": b'{"a": "\xff"}',
    "overlong utf-8": b'{"a": "\xc0\xae"}',
    "half a surrogate pair in utf-8": b'{"a": "\xed\xa0\x80"}',
    "utf-16": '{"a": 1}'.encode("utf-16"),
    "byte order mark": b'\xef\xbb\xbf{"a": 1}',
    "bad escape": b'{"a": "\\x41"}',
    "NaN": b'{"a": NaN}',
    "infinity": b'{"a": Infinity}',
    "minus infinity": b'{"a": -Infinity}',
    "beyond a double": b'{"a": 1e999}',
    "far below zero": b'{"a": -1e999}',
    "many digits": b'{"a": ' + b"9" * 5000 + b"}",
    "leading zero": b'{"a": 01}',
    "plus": b'{"a": +1}',
    "hex": b'{"a": 0x1}',
    "deep objects": _nested(100_000),
    "deep arrays": _nested(100_000, "[", "]"),
    "half a surrogate pair": b'{"a": "\\ud800"}',
    "the other half": b'{"a": "\\udc00"}',
    "xml": b"<?xml version='1.0'?><!DOCTYPE x [<!ENTITY e SYSTEM 'file:///etc/passwd'>]><x>&e;</x>",
    "form": b"a=1&b=2",
}
NOT_OBJECTS = [b"null", b"[]", b"7", b'"x"', b"true", b'[{"a": 1}]']
# JSON, but of a kind that later parts of a server may stumble over.
ODD_VALUES = {
    "300 levels": _nested(300),
    "900 levels": _nested(900),
    "900 levels of arrays": _nested(900, "[", "]"),
    "beyond 64 bits": b"18446744073709551616",
    "far beyond 64 bits": b"9" * 300,
    "small fraction": b"1e-400",
    "large fraction": b"1.7976931348623157e308",
    "minus zero": b"-0.0",
    "nul": b'"\\u0000"',
    "separator": b'"a\\u001fb"',
    "not a character": b'"\\uffff"',
    "long": b'"' + b"x" * 100_000 + b'"',
    "long key": b'{"' + b"k" * 100_000 + b'": 1}',
    "many keys": orjson.dumps({f"k{number}": number for number in range(20_000)}),
    "many entries": orjson.dumps([None] * 100_000),
    "prototype": b'{"__proto__": {"admin": true}, "constructor": 1, "__class__": 2}',
}
WRONG_TYPES: list[Any] = [
    None,
    True,
    -1,
    7.5,
    2**63,
    "",
    "x",
    "\x00",
    [],
    [None],
    [[]],
    {},
    {"a": None},
    {"": {}},
]


@pytest.fixture(scope="module")
def maker(recorded: Lake) -> Maker:
    return Maker(recorded.rest)


def _send(maker: Maker, request: Request, content: bytes) -> httpx.Response:
    headers = {"Content-Type": "application/json"}
    if request.path == "/v1/oauth/tokens":
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
    return maker.rest.http.request(request.method, request.path, content=content, headers=headers)


@pytest.mark.parametrize("served", WITH_BODY, ids=lambda served: served.id)
def test_what_is_not_json_is_refused(maker: Maker, served: Served) -> None:
    request, wrong = maker.request(served), []
    head = maker.rest.head()
    bodies = BROKEN | {text.decode(): text for text in NOT_OBJECTS}
    if served.id in OPTIONAL_BODY:
        bodies.pop("null")
    else:
        bodies["nothing"] = b""
    for label, body in bodies.items():
        answer = _send(maker, request, body)
        if answer.status_code != 400 or not is_error(answer):
            wrong.append((label, answer.status_code, answer.text[:200]))
    assert not wrong
    assert maker.rest.head() == head


@pytest.mark.parametrize("served", WITH_BODY, ids=lambda served: served.id)
def test_odd_json_is_harmless(maker: Maker, served: Served) -> None:
    wrong = []
    for label, body in _odd_bodies(orjson.dumps(maker.request(served).body or {})):
        answer = _send(maker, maker.request(served) if served.id == "undrop" else _same(maker, served), body)
        if answer.status_code >= 500 or not (answer.is_success or is_error(answer)):
            wrong.append((label, answer.status_code, answer.text[:200]))
    assert not wrong


def _same(maker: Maker, served: Served) -> Request:
    """The request again. What it would use up may be gone by now: it is the body that matters."""
    known = _requests.get((id(maker), served.id))
    if known is None:
        known = _requests[id(maker), served.id] = maker.request(served)
    return known


_requests: dict[tuple[int, str], Request] = {}


def _odd_bodies(sound: bytes) -> Iterator[tuple[str, bytes]]:
    body = orjson.loads(sound)
    for label, value in ODD_VALUES.items():
        yield f"another field: {label}", b'{"x-odd":' + value + (b"," + sound[1:] if len(sound) > 2 else b"}")
        for key in body:
            rest = orjson.dumps({k: v for k, v in body.items() if k != key})
            yield (
                f"{key}: {label}",
                b"{" + orjson.dumps(key) + b":" + value + (b"," + rest[1:] if len(rest) > 2 else b"}"),
            )
    for path in _paths(body):
        for value in WRONG_TYPES:
            yield (
                f"{path}: {value!r}",
                orjson.dumps(_replaced(body, path, value), option=orjson.OPT_NON_STR_KEYS),
            )
    for key in body:
        # Twice the same key: whichever counts, it counts for everybody, as the body is read once.
        again = json.dumps(key) + ": null, " + json.dumps(key) + ": 7, "
        yield f"{key} twice", b"{" + again.encode() + sound[1:]


def _paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a body."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in inside:
        yield (*at, key)
        yield from _paths(below, (*at, key))


def _replaced(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    copy = orjson.loads(orjson.dumps(body))
    target = copy
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return copy


def test_odd_json_is_harmless_inside_a_transaction(recorded: Lake) -> None:
    """What a transaction holds back is written down as it came, the requirements too."""
    wrong = []
    update = {"action": "set-properties", "updates": {"a": "b"}}
    requirement = {"type": "assert-table-uuid", "uuid": recorded.table["table-uuid"]}
    for label, value in ODD_VALUES.items():
        for field, sound in (("requirements", requirement), ("updates", update)):
            odd = b'[{"x-odd":' + value + b"," + orjson.dumps(sound)[1:] + b"]"
            other = (
                b'"updates":' + orjson.dumps([update]) if field == "requirements" else b'"requirements":[]'
            )
            body = b"{" + orjson.dumps(field) + b":" + odd + b"," + other + b"}"
            answer = recorded.inside.call(
                "POST", recorded.inside.table_path(recorded.namespace, "t"), content=body
            )
            if answer.status_code >= 500:
                wrong.append((field, label, answer.status_code))
    assert not wrong


# -- queries and headers, on both stacks: a database may refuse what a parser lets through


@pytest.fixture
def listed(stack: Stack) -> tuple[Rest, str]:
    """A list of several pages."""
    rest = Rest(stack.url)
    namespace = rest.fresh_namespace()
    for name in ("a", "b", "c"):
        rest.create(namespace, name)
    return rest, namespace


def _token(rest: Rest, path: str, last: Any) -> str:
    """A page token that looks as if this list had given it out."""
    token = rest.ok("GET", path, params={"pageToken": "", "pageSize": "1"})["next-page-token"]
    mark = orjson.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))[0]
    return base64.urlsafe_b64encode(json.dumps([mark, last]).encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    "last", ["a\x00b", "\x00", "\ud800", "a" * 1000, "'; --", 7, None, ["a"], {"a": 1}], ids=repr
)
def test_a_page_token_made_by_hand_is_refused_or_harmless(listed: tuple[Rest, str], last: Any) -> None:
    rest, namespace = listed
    path = rest.namespace_path(namespace, "tables")
    answer = rest.call("GET", path, params={"pageToken": _token(rest, path, last), "pageSize": "1"})
    assert answer.status_code in (200, 400), answer.text


@pytest.mark.parametrize(
    "token", ["x", "%00", "%ff", "....", "a" * 10_000, "W10", "bnVsbA", "eyJhIjoxfQ", "ü", "==", "-1"]
)
def test_a_page_token_of_nowhere_is_refused(listed: tuple[Rest, str], token: str) -> None:
    rest, namespace = listed
    for path in (
        rest.namespace_path(namespace, "tables"),
        rest.namespace_path(namespace, "views"),
        rest.path("namespaces"),
    ):
        assert_error(rest.call("GET", f"{path}?pageToken={token}"), 400)


@pytest.mark.parametrize(
    "query",
    [
        "pageToken=&pageSize=0",
        "pageToken=&pageSize=-1",
        "pageToken=&pageSize=x",
        "pageToken=&pageSize=1.5",
        "pageToken=&pageSize=" + "9" * 5000,
        "pageToken=&pageSize=%D9%A1",
        "pageSize=%ff",
        "parent=%00",
        "parent=%ff",
        "parent=..",
        "parent=%1F",
        "&".join(f"a{number}=1" for number in range(100)) + "&pageSize=1",
    ],
)
def test_a_hostile_query_is_refused(listed: tuple[Rest, str], query: str) -> None:
    rest, _ = listed
    answer = rest.call("GET", f"{rest.path('namespaces')}?{query}")
    assert_error(answer, 400, 404)


@pytest.mark.parametrize(
    "query",
    [
        "after=-1",
        "after=x",
        "after=" + "9" * 30,
        "limit=0",
        "limit=1001",
        "limit=x",
        "wait_s=-1",
        "wait_s=61",
        "wait_s=nan",
        "wait_s=inf",
        "wait_s=1e999",
        "after=%00",
    ],
)
def test_a_hostile_query_of_our_own_routes_is_refused(listed: tuple[Rest, str], query: str) -> None:
    rest, _ = listed
    assert_error(rest.lake("GET", f"main/events?{query}"), 400)


@pytest.mark.parametrize(
    "header",
    [
        {"Idempotency-Key": ""},
        {"Idempotency-Key": "x"},
        {"Idempotency-Key": "a" * 5000},
        {"Idempotency-Key": "0198c5a2-4d7f-7b92-a1c4-90e3f6d2b81g"},
        {"Idempotency-Key": "'; DROP TABLE idempotency; --"},
    ],
    ids=lambda header: str(header)[:60],
)
def test_a_hostile_key_is_refused(listed: tuple[Rest, str], header: dict[str, str]) -> None:
    rest, namespace = listed
    answer = rest.call("POST", rest.path("namespaces"), json={"namespace": [f"{namespace}k"]}, headers=header)
    assert_error(answer, 400)


@pytest.mark.parametrize(
    "value", ["", ",", '"', "W/", '"x"' * 4_000, "*,*", "\\"], ids=lambda v: repr(v)[:20]
)
def test_a_hostile_etag_is_harmless(listed: tuple[Rest, str], value: str) -> None:
    rest, namespace = listed
    answer = rest.call("GET", rest.table_path(namespace, "a"), headers={"If-None-Match": value})
    assert answer.status_code in (200, 304)


@pytest.mark.parametrize(
    "chain",
    [
        "x",
        "%1F",
        "a%1Fb," * 40 + "a%1Fb",
        "a%1F",
        "%1Fb",
        "%ff%1Fb",
        "a%1F%00",
        ",",
        "a%1Fb,,a%1Fb",
        "a" * 60_000,
    ],
)
def test_a_hostile_chain_of_views_is_refused(listed: tuple[Rest, str], chain: str) -> None:
    """Unbounded chains cost another catalog its memory."""
    rest, namespace = listed
    answer = rest.call("GET", f"{rest.table_path(namespace, 'a')}?referenced-by={chain}")
    assert_error(answer, 400, 431)


def test_the_longest_names_work_with_a_key(stack: Stack) -> None:
    """All parts of an index entry together have a limit, and keys are kept under the encoded path."""
    rest = Rest(stack.url)
    levels = [rest.fresh_namespace()]
    chance = random.Random(7)  # so that nothing can be compressed
    letters = [chr(code) for code in range(0x3400, 0xD7A4) if not 0x9FFF < code < 0xAC00]

    def longest() -> str:
        return "".join(chance.choices(letters, k=85))

    for _ in range(7):
        levels.append(longest())
        answer = rest.call(
            "POST", rest.path("namespaces"), json={"namespace": levels}, headers={"Idempotency-Key": uuid7()}
        )
        assert answer.status_code == 200, answer.text
    name = longest()
    headers = {"Idempotency-Key": uuid7()}
    body = {"name": name, "schema": {"type": "struct", "fields": []}}
    answer = rest.call("POST", rest.namespace_path(levels, "tables"), json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    answer = rest.call("DELETE", rest.table_path(levels, name), headers={"Idempotency-Key": uuid7()})
    assert answer.status_code == 204, answer.text
