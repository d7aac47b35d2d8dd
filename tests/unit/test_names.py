"""Names and warehouse references: what is accepted, how it is encoded, what is refused and why."""

from __future__ import annotations

import unicodedata
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.errors import Invalid
from catalog.moments import AtNumber, AtTime, Now
from catalog.names import (
    LEVELS_MAX,
    Identifier,
    Namespace,
    WarehouseRef,
    check_name,
    check_transaction_name,
    check_warehouse_name,
    decode_segment,
    identifier_from_body,
    namespace_from_levels,
    namespace_from_segment,
    warehouse_ref,
)

ACCEPTED = [
    "orders",
    "Orders",
    "a.b",
    "...",
    ".hidden",
    "a b",
    " ",
    " leading and trailing ",
    "a/b",
    "/",
    "../x",
    "50%",
    "%2F",
    "a+b",
    "c++",
    "it's",
    'say "hi"',
    "a\\b",
    "*.*",
    "f*.t1",
    "${x}",
    "?x=1#y",
    "a;drop table t--",
    "naïve",
    "表",
    "таблица",
    "שולחן",
    "🧊🏔️",
    "family 👩‍👩‍👧",
    "config",
    "x" * 255,
    "é" * 127,
]

REFUSED = [
    ("", "empty"),
    (".", "'.' and '..'"),
    ("..", "'.' and '..'"),
    ("a\x00b", "control characters"),
    ("a\x1fb", "control characters"),
    ("a\nb", "control characters"),
    ("a\x7fb", "control characters"),
    ("a\x85b", "control characters"),
    ("a\u2028b", "control characters"),
    ("e\u0301", "normal form C"),
    ("\u212b", "normal form C"),
    ("x" * 256, "255 bytes"),
    ("é" * 128, "255 bytes"),
]

NAMES = st.text(st.characters(exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1, max_size=40).filter(
    lambda text: text not in (".", "..") and unicodedata.is_normalized("NFC", text)
)


@pytest.mark.parametrize("name", ACCEPTED)
def test_any_name_works_in_a_body_and_in_a_path(name: str) -> None:
    assert check_name(name, "table") == name
    assert decode_segment(quote(name, safe="")) == name
    assert decode_segment(quote_plus(name)) == name
    assert namespace_from_segment(quote(name, safe="")).levels == (name,)


@pytest.mark.parametrize(("name", "reason"), REFUSED)
def test_a_hostile_name_is_refused_with_its_reason(name: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        check_name(name, "table")
    with pytest.raises(Invalid, match=reason):
        decode_segment(quote(name, safe=""))
    with pytest.raises(Invalid, match=reason):
        namespace_from_levels(["a", name])


@pytest.mark.parametrize("value", [None, 1, True, ["a"], {"name": "a"}, b"a"])
def test_only_text_is_a_name(value: object) -> None:
    with pytest.raises(Invalid, match="Invalid view name: must be a string"):
        check_name(value, "view")


def test_a_lone_surrogate_is_refused_everywhere() -> None:
    for name in ("\ud800", "a\udfffb"):
        with pytest.raises(Invalid, match="not valid Unicode"):
            check_name(name, "table")
    with pytest.raises(Invalid, match="not valid UTF-8"):
        decode_segment("%ED%A0%80")


@pytest.mark.parametrize("raw", ["%ff", "%C3", "%C0%AE%C0%AE", "%F5%80%80%80", "a%E2%82"])
def test_bytes_that_are_not_utf8_are_refused(raw: str) -> None:
    with pytest.raises(Invalid, match="not valid UTF-8"):
        decode_segment(raw)
    with pytest.raises(Invalid, match="not valid UTF-8"):
        namespace_from_segment(f"a%1F{raw}")


@pytest.mark.parametrize("raw", ["%", "%2", "%zz", "100%", "a%%41", "%u0041"])
def test_a_broken_escape_is_refused(raw: str) -> None:
    with pytest.raises(Invalid, match="two hexadecimal digits"):
        decode_segment(raw)


def test_an_unencoded_character_outside_ascii_is_refused() -> None:
    with pytest.raises(Invalid, match="must be percent-encoded"):
        decode_segment("é")


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ("a+b", "a b"),
        ("a%20b", "a b"),
        ("a%2Bb", "a+b"),
        ("a%2bb", "a+b"),
        ("a%2Fb", "a/b"),
        ("a/b", "a/b"),
        ("%252F", "%2F"),
        ("%252e%252e", "%2e%2e"),
        ("%25252F", "%252F"),
        ("%E8%A1%A8", "表"),
    ],
)
def test_a_segment_is_decoded_exactly_once(raw: str, name: str) -> None:
    assert decode_segment(raw) == name


@pytest.mark.parametrize("raw", ["%2e", "%2E%2e", ".%2E", "%00", "a%1Fb", "a%0Ab", ""])
def test_encoding_does_not_hide_a_hostile_name(raw: str) -> None:
    with pytest.raises(Invalid):
        decode_segment(raw)


@given(NAMES)
def test_every_name_survives_both_ways_of_encoding(name: str) -> None:
    assert decode_segment(quote(name, safe="")) == name
    assert decode_segment(quote_plus(name)) == name
    assert check_name(name, "table") is name


@given(st.text(max_size=20))
def test_whatever_is_decoded_is_a_checked_name(raw: str) -> None:
    try:
        name = decode_segment(raw)
    except Invalid:
        return
    assert check_name(name, "table") == name


# --- namespaces ---------------------------------------------------------------------------------------------


@given(st.lists(NAMES, min_size=1, max_size=5))
def test_a_namespace_survives_the_path_the_key_and_the_body(levels: list[str]) -> None:
    namespace = Namespace(tuple(levels))
    assert namespace_from_segment("%1F".join(quote(level, safe="") for level in levels)) == namespace
    assert namespace_from_segment("%1f".join(quote_plus(level) for level in levels)) == namespace
    if len(levels) > 1:
        assert namespace_from_segment("%1F".join(quote(level, safe="") for level in levels), ".") == namespace
    assert namespace_from_levels(levels) == namespace
    assert Namespace.from_key(namespace.key) == namespace


def test_the_texts_of_a_namespace_and_an_identifier() -> None:
    namespace = Namespace(("a", "b"))
    assert str(namespace) == "a.b"
    assert namespace.key == "a\x1fb"
    assert str(Identifier(namespace, "t")) == "a.b.t"
    assert str(Identifier(Namespace(()), "t")) == "t"
    assert Namespace.from_key("") == Namespace(())


@pytest.mark.parametrize(
    ("raw", "separator", "levels"),
    [
        ("a.b", "\x1f", ("a.b",)),
        ("a%2Eb", "\x1f", ("a.b",)),
        ("a\x1fb", "\x1f", ("a", "b")),
        ("a.b", ".", ("a", "b")),
        ("a%2Eb", ".", ("a", "b")),
        ("a%2eb", ".", ("a", "b")),
        ("a.b%2Ec", ".", ("a.b", "c")),
        ("a.b%1Fc", ".", ("a.b", "c")),
        ("a%1Fb", ".", ("a", "b")),
        ("a%7Cb", "|", ("a", "b")),
        ("a%2Fb%1Fc", "\x1f", ("a/b", "c")),
        ("a%3A%3Ab", "::", ("a", "b")),
        ("a::b", "::", ("a", "b")),
    ],
)
def test_the_advertised_separator_and_1f_both_separate(
    raw: str, separator: str, levels: tuple[str, ...]
) -> None:
    assert namespace_from_segment(raw, separator).levels == levels


@pytest.mark.parametrize("raw", ["", "%1F", "a%1F", "%1Fa", "a%1F%1Fb", "a%1F..", "a%1F%2e", "a%251F%00"])
def test_a_namespace_with_a_bad_level_is_refused(raw: str) -> None:
    with pytest.raises(Invalid):
        namespace_from_segment(raw)


@pytest.mark.parametrize("levels", [None, "a", {}, [], [1], [None], ["a", ""], ["a", ["b"]]])
def test_a_body_that_is_no_namespace_is_refused(levels: object) -> None:
    with pytest.raises(Invalid):
        namespace_from_levels(levels)


def test_the_limits_of_a_namespace() -> None:
    assert len(namespace_from_levels(["x"] * LEVELS_MAX).levels) == LEVELS_MAX
    with pytest.raises(Invalid, match="33 levels"):
        namespace_from_levels(["x"] * (LEVELS_MAX + 1))
    with pytest.raises(Invalid, match="2000 bytes"):
        namespace_from_levels(["x" * 255] * 8)


@pytest.mark.parametrize(
    "value", [None, [], "a.b", {}, {"name": "t"}, {"namespace": ["a"]}, {"namespace": [], "name": "t"}]
)
def test_a_body_that_is_no_identifier_is_refused(value: object) -> None:
    with pytest.raises(Invalid):
        identifier_from_body(value)


def test_an_identifier_from_a_body() -> None:
    value = {"namespace": ["a", "b c"], "name": "t/1", "more": True}
    assert identifier_from_body(value) == Identifier(Namespace(("a", "b c")), "t/1")


# --- warehouse references -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "ref", "moment"),
    [
        ("main", WarehouseRef("main"), None),
        ("W_1-x", WarehouseRef("W_1-x"), None),
        ("main@1234", WarehouseRef("main", at="1234"), AtNumber(1234)),
        ("main@0", WarehouseRef("main", at="0"), AtNumber(0)),
        ("main@now", WarehouseRef("main", at="now"), Now()),
        ("main@1970-01-01T00:00:01Z", WarehouseRef("main", at="1970-01-01T00:00:01Z"), AtTime(1000)),
        ("main@1970-01-01t02:00:00+02:00", WarehouseRef("main", at="1970-01-01T00:00:00Z"), AtTime(0)),
        ("main@1969-12-31T23:59:59.999Z", WarehouseRef("main", at="1969-12-31T23:59:59.999Z"), AtTime(-1)),
        (
            "main@1970-01-01T00:00:00.5-00:30",
            WarehouseRef("main", at="1970-01-01T00:30:00.500Z"),
            AtTime(1800500),
        ),
        (
            "main@1970-01-01T00:00:00.123999999z",
            WarehouseRef("main", at="1970-01-01T00:00:00.123Z"),
            AtTime(123),
        ),
        ("main~w1-0", WarehouseRef("main", transaction="w1-0"), None),
        ("main~W.1_x", WarehouseRef("main", transaction="W.1_x"), None),
    ],
)
def test_a_warehouse_reference_and_its_canonical_text(text: str, ref: WarehouseRef, moment: object) -> None:
    assert warehouse_ref(text) == ref
    assert ref.moment == moment
    assert warehouse_ref(str(ref)) == ref


@pytest.mark.parametrize(
    "text",
    [
        "",
        "@1",
        "~x",
        "main@",
        "main~",
        "main@1~x",
        "main~x@1",
        "main~x~y",
        "main@1@2",
        "main@00",
        "main@-1",
        "main@007",
        "main@1.5",
        "main@١٢",
        "main@1234567890123456789",
        "main@NOW",
        "main@yesterday",
        "main@2026-11-15",
        "main@2026-11-15T00:00:00",
        "main@2026-11-15 00:00:00Z",
        "main@2026-11-15T00:00:00 02:00",
        "main@2026-13-15T00:00:00Z",
        "main@2026-02-29T00:00:00Z",
        "main@2026-11-15T24:00:00Z",
        "main@2026-11-15T00:00:60Z",
        "main@2026-11-15T00:00:00+24:00",
        "main@2026-11-15T00:00:00+00:60",
        "main@0000-01-01T00:00:00Z",
        "main@0001-01-01T00:00:00+01:00",
        "main@9999-12-31T23:59:59-01:00",
        "main@2026-11-15T00:00:00Z\n",
        "main\n",
        "-main",
        "_main",
        "ma in",
        "ma/in",
        "main.x",
        "mäin",
        "m" * 64,
        "main~" + "x" * 64,
        "main~.x",
        "main~a b",
        "main~x\n",
        "config",
        "oauth",
        "namespaces",
        "Tables",
        "views",
        "transactions",
        "warehouses",
        "config@1",
    ],
)
def test_a_warehouse_reference_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        warehouse_ref(text)


def test_moment_and_transaction_together_are_refused_with_the_reason() -> None:
    with pytest.raises(Invalid, match="cannot be combined"):
        warehouse_ref("main@1~x")


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_every_time_is_its_own_canonical_text(ms: int) -> None:
    ref = WarehouseRef("main", at=str(AtTime(ms)))
    assert warehouse_ref(str(ref)) == ref
    assert ref.moment == AtTime(ms)


def test_names_of_warehouses_and_transactions_must_be_text() -> None:
    for value in (None, 1, ["main"]):
        with pytest.raises(Invalid):
            check_warehouse_name(value)
        with pytest.raises(Invalid):
            check_transaction_name(value)
