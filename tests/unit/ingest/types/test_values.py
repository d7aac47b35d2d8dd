"""Single values: numbers, text, bytes and nested ones, with the vectors of the producers."""

from __future__ import annotations

import base64
import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.types.errors import RejectedValue
from ingest.types.values import convert


def kind_of(value: Any) -> str:
    """A name for a test that pytest can print."""
    return type(value).__name__


BASE64_NUMBERS = [
    ("AA==", 0),
    ("AQ==", 1),
    ("/w==", -1),
    ("fw==", 127),
    ("AIA=", 128),
    ("gA==", -128),
    ("/38=", -129),
    ("AY/J", 102345),
    ("D3J5", 1012345),
    ("AP//////////", 18446744073709551615),
    ("SztMqFqGxHoJiiI//////w==", 10**38 - 1),
    ("tMSzV6V5O4X2dd3AAAAAAQ==", -(10**38 - 1)),
]


def test_a_moment_that_is_sent_as_a_number_is_readable_as_text() -> None:
    assert convert("c", 19_782, "string", "days") == "2024-02-29"
    assert convert("c", 1_000, "string", "ms") == "1970-01-01T00:00:01"
    assert convert("c", -1, "string", "us") == "1969-12-31T23:59:59.999999"


@pytest.mark.parametrize(("text", "number"), BASE64_NUMBERS)
def test_unscaled_decimals_in_base64(text: str, number: int) -> None:
    assert convert("c", text, "decimal(38,0)", "decimal-base64") == number
    assert convert("c", text, "decimal(38,0)") == number  # no schema: the table's type tells
    assert convert("c", {"scale": 0, "value": text}, "decimal(38,0)", "decimal-struct") == number
    assert convert("c", text, "string", "decimal-base64:0") == str(number)


@pytest.mark.parametrize(
    ("value", "type_", "encoding", "number"),
    [
        ("MDk=", "decimal(10,2)", "decimal-base64", "123.45"),
        ("z8c=", "decimal(10,2)", "decimal-base64", "-123.45"),
        ("MDk=", "decimal(10,2)", None, "123.45"),
        ("MDk=", "decimal(12,4)", "decimal-base64:2", "123.45"),  # the producer's scale, not the table's
        ({"scale": 2, "value": "z8c="}, "decimal(10,4)", None, "-123.45"),
        ({"scale": -2, "value": "AQ=="}, "decimal(10,4)", "decimal-struct", "100"),
        ("123.45", "decimal(10,2)", None, "123.45"),
        ("1234", "decimal(10,0)", None, "1234"),  # is base64 too, but a number first
        ("1234", "decimal(38,0)", "decimal-base64", "-2658824"),
        (123.45, "decimal(10,2)", "decimal-base64", "123.45"),
        (0.1, "decimal(3,1)", None, "0.1"),
        (7, "decimal(3,1)", None, "7"),
        (Decimal("1234567890123456789.01"), "decimal(38,2)", None, "1234567890123456789.01"),
        ("1.500", "decimal(3,1)", None, "1.5"),
        ("1e2", "decimal(3,0)", None, "100"),
        ("-0.00", "decimal(3,2)", None, "0"),
        (" 5 ", "decimal(1,0)", None, "5"),
    ],
)
def test_decimals(value: Any, type_: str, encoding: str | None, number: str) -> None:
    assert convert("c", value, type_, encoding) == Decimal(number)


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        ("1.55", "decimal(10,1)"),
        (0.1 + 0.2, "decimal(10,2)"),
        ("100", "decimal(2,0)"),
        ("9.99", "decimal(2,2)"),
        (10**38, "decimal(38,0)"),
        ("1e999999", "decimal(38,0)"),
        ("1e-999999", "decimal(38,10)"),
        ("NaN", "decimal(10,2)"),
        (math.inf, "decimal(10,2)"),
        ("", "decimal(10,2)"),
        ("abc", "decimal(10,2)"),
        (True, "decimal(10,2)"),
        ([1], "decimal(10,2)"),
        ({"scale": 10**9, "value": "AQ=="}, "decimal(10,2)"),
        ({"scale": "2", "value": "AQ=="}, "decimal(10,2)"),
        ({"value": "AQ=="}, "decimal(10,2)"),
        (base64.b64encode(b"\1" * 100_000).decode(), "decimal(38,0)"),
    ],
)
def test_a_decimal_is_never_rounded(value: Any, type_: str) -> None:
    with pytest.raises(RejectedValue):
        convert("c", value, type_)


@settings(deadline=None)
@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 38))
def test_every_unscaled_decimal_survives(number: int, scale: int) -> None:
    data = number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True)
    text = base64.b64encode(data).decode()
    found = convert("c", text, f"decimal(38,{scale})", f"decimal-base64:{scale}")
    sign, digits, exponent = found.as_tuple()
    assert (-1 if sign else 1) * int("".join(map(str, digits))) == number
    assert exponent == -scale


@pytest.mark.parametrize(
    ("value", "type_", "number"),
    [
        (5, "int", 5),
        (1.0, "long", 1),
        ("42", "long", 42),
        ("-42", "int", -42),
        ("+7", "long", 7),
        ("1.0", "long", 1),
        ("1e3", "long", 1000),
        (Decimal(12), "long", 12),
        (2**63 - 1, "long", 2**63 - 1),
        ("-9223372036854775808", "long", -(2**63)),
        (2**31 - 1, "int", 2**31 - 1),
    ],
)
def test_whole_numbers(value: Any, type_: str, number: int) -> None:
    found = convert("c", value, type_)
    assert found == number
    assert type(found) is int


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (True, "long"),
        (1.5, "long"),
        ("1.5", "long"),
        ("", "long"),
        ("x", "long"),
        ("0x10", "long"),
        ("MDk=", "long"),
        ("1_000", "long"),
        ("٣", "long"),
        (2**63, "long"),
        (1e300, "long"),
        ("1e999999", "long"),
        ("9" * 5_000, "long"),
        (2**31, "int"),
        (math.nan, "long"),
        (math.inf, "long"),
        ("NaN", "long"),
        ({}, "long"),
        ([], "int"),
    ],
)
def test_what_is_no_whole_number_or_too_large(value: Any, type_: str) -> None:
    with pytest.raises(RejectedValue):
        convert("c", value, type_)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1, 1.0),
        (1.5, 1.5),
        ("2.5", 2.5),
        ("-1e10", -1e10),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("-inf", -math.inf),
        (2**60 + 1, float(2**60)),
        (Decimal("0.12345678901234567890"), 0.12345678901234568),
    ],
)
def test_doubles(value: Any, number: float) -> None:
    assert convert("c", value, "double") == number


def test_nan_as_text() -> None:
    assert math.isnan(convert("c", "NaN", "double"))
    assert math.isnan(convert("c", "nan", "float"))


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (True, "double"),
        ("1e400", "double"),
        (10**400, "double"),
        ("x y", "double"),
        ("MDk=", "double"),
        (1e39, "float"),
        ("-1e39", "float"),
        ([], "double"),
    ],
)
def test_what_no_double_holds(value: Any, type_: str) -> None:
    with pytest.raises(RejectedValue):
        convert("c", value, type_)


@pytest.mark.parametrize(
    ("value", "truth"),
    [
        *((True, True), (False, False), (1, True), (0, False), ("1", True), ("0", False)),
        *(("true", True), ("FALSE", False), ("t", True), ("f", False)),
    ],
)
def test_booleans(value: Any, truth: bool) -> None:
    assert convert("c", value, "boolean") is truth


@pytest.mark.parametrize("value", [2, -1, 1.0, "yes", "", "2", [], {}])
def test_what_is_neither_true_nor_false(value: Any) -> None:
    with pytest.raises(RejectedValue):
        convert("c", value, "boolean")


@pytest.mark.parametrize(
    ("value", "encoding", "text"),
    [
        ("plain", None, "plain"),
        ("", None, ""),
        (1, None, "1"),
        (1.0, None, "1.0"),
        (2**70, None, str(2**70)),
        (Decimal("0.12345678901234567890"), None, "0.12345678901234567890"),
        (True, None, "true"),
        ({"a": [1, None, "ü"]}, None, '{"a":[1,null,"ü"]}'),
        ({"a": 2**70}, "json", '{"a":' + str(2**70) + "}"),
        ([Decimal("1.10")], None, "[1.10]"),
        ('{"a":1}', "json", '{"a":1}'),
        ({"scale": 2, "value": "MDk="}, "decimal-struct", "123.45"),
        ({"scale": -3, "value": "AQ=="}, "decimal-struct", "1000"),
        ("MDk=", "decimal-base64:2", "123.45"),
        ("AwI=", "bits-base64", "1000000011"),
        ("MDk=", "base64", "MDk="),
    ],
)
def test_text(value: Any, encoding: str | None, text: str) -> None:
    assert convert("c", value, "string", encoding) == text


@pytest.mark.parametrize("value", ["\ud800", {"a": "\udfff"}, math.nan, [10**5_000]], ids=kind_of)
def test_what_cannot_be_text(value: Any) -> None:
    with pytest.raises(RejectedValue):
        convert("c", value, "string")


def test_too_deep_to_be_text() -> None:
    deep: Any = []
    for _ in range(5_000):
        deep = [deep]
    with pytest.raises(RejectedValue):
        convert("c", deep, "string")


@pytest.mark.parametrize(
    ("value", "type_", "encoding", "data"),
    [
        ("MDk=", "binary", None, b"09"),
        ("MDk=", "binary", "base64", b"09"),
        ("MDk", "binary", "base64", b"09"),
        ("-_8=", "binary", "base64", b"\xfb\xff"),
        ("", "binary", None, b""),
        ("3039", "binary", "hex", b"09"),
        ("\\x3039", "binary", None, b"09"),
        ("\\xDEADbeef", "fixed[4]", None, b"\xde\xad\xbe\xef"),
        ("AwI=", "binary", "bits-base64", b"\x02\x03"),
        ({"wkb": "MDk=", "srid": None, "x": 1.0, "y": 2.0}, "binary", None, b"09"),
    ],
)
def test_bytes(value: Any, type_: str, encoding: str | None, data: bytes) -> None:
    assert convert("c", value, type_, encoding) == data


def test_bits_are_read_from_the_lowest_byte() -> None:
    assert convert("c", "AwI=", "int", "bits-base64") == 0b1000000011
    assert convert("c", "AQ==", "boolean", "bits-base64") is True


@pytest.mark.parametrize(
    ("value", "type_", "encoding"),
    [
        ("M D k =", "binary", None),
        ("****", "binary", None),
        ("303", "binary", "hex"),
        ("zz", "binary", "hex"),
        ("MDk=", "fixed[3]", None),
        (5, "binary", None),
        ({"srid": 1}, "binary", None),
    ],
)
def test_what_is_not_bytes(value: Any, type_: str, encoding: str | None) -> None:
    with pytest.raises(RejectedValue):
        convert("c", value, type_, encoding)


UUID = "123e4567-e89b-12d3-a456-426614174000"


@pytest.mark.parametrize("value", [UUID, UUID.upper(), UUID.replace("-", ""), "{" + UUID + "}"])
def test_uuids(value: str) -> None:
    assert convert("c", value, "uuid") == UUID


def test_a_uuid_as_bytes() -> None:
    text = base64.b64encode(bytes.fromhex(UUID.replace("-", ""))).decode()
    assert convert("c", text, "uuid", "base64") == UUID


@pytest.mark.parametrize("value", ["", "123e4567", UUID[:-1], UUID + "0", 5, UUID.replace("-", "", 1)])
def test_what_is_not_a_uuid(value: Any) -> None:
    with pytest.raises(RejectedValue):
        convert("c", value, "uuid")


STRUCT = {
    "type": "struct",
    "fields": [
        {"id": 2, "name": "x", "required": True, "type": "long"},
        {"id": 3, "name": "at", "required": False, "type": "date"},
    ],
}
LIST = {"type": "list", "element-id": 2, "element": "timestamp", "element-required": False}
MAP = {"type": "map", "key-id": 2, "key": "string", "value-id": 3, "value": "long", "value-required": True}


@pytest.mark.parametrize(
    ("value", "type_", "encoding", "found"),
    [
        ({"x": 1, "at": "2024-02-29"}, STRUCT, None, {"x": 1, "at": 19782}),
        ({"x": "1"}, STRUCT, None, {"x": 1, "at": None}),
        ('{"x": 1}', STRUCT, "json", {"x": 1, "at": None}),
        ([1, None, -1], LIST, "ms", [1000, None, -1000]),
        ([], LIST, None, []),
        ({"a": 1}, MAP, None, [("a", 1)]),
        ([["a", 1]], MAP, None, [("a", 1)]),
        ('{"a": 1}', MAP, None, [("a", 1)]),
    ],
)
def test_nested_values(value: Any, type_: Any, encoding: str | None, found: Any) -> None:
    assert convert("c", value, type_, encoding) == found


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        ({"at": None}, STRUCT),
        ({"x": 1, "other": 2}, STRUCT),
        ({"x": "one"}, STRUCT),
        ([1], STRUCT),
        ("no json", STRUCT),
        (5, STRUCT),
        ({"a": 1}, LIST),
        ({"a": None}, MAP),
        ([["a", 1, 2]], MAP),
        ([[None, 1]], MAP),
        ([1], MAP),
    ],
)
def test_nested_values_that_do_not_fit(value: Any, type_: Any) -> None:
    with pytest.raises(RejectedValue):
        convert("c", value, type_)


@pytest.mark.parametrize("type_", ["long", "string", "date", "decimal(9,2)", "uuid", "binary", LIST, STRUCT])
def test_null_is_null(type_: Any) -> None:
    assert convert("c", None, type_) is None


def test_the_message_says_column_value_and_type() -> None:
    with pytest.raises(RejectedValue) as refused:
        convert("age", "forty-two", "long")
    assert str(refused.value) == "column \"age\": 'forty-two' does not fit long: not a number"
    assert (refused.value.column, refused.value.value, refused.value.type) == ("age", "forty-two", "long")


def test_a_long_value_is_shortened_in_the_message() -> None:
    for value in ("x" * 10_000, ["y" * 10_000], 10**10_000, "\ud800" * 100):
        with pytest.raises(RejectedValue) as refused:
            convert("c", value, "boolean")
        message = str(refused.value)
        assert len(message) <= 80 + len('column "c":  does not fit boolean: not true or false')
        message.encode()


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.decimals() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
TARGETS = st.sampled_from(
    [
        *("boolean", "int", "long", "float", "double", "decimal(9,2)", "decimal(38,38)", "string", "uuid"),
        *("binary", "fixed[3]", "date", "time", "timestamp", "timestamptz", "timestamp_ns"),
        *(STRUCT, LIST, MAP),
    ]
)
ENCODINGS = st.sampled_from(
    [
        *(None, "days", "ms", "us", "ns", "base64", "hex", "decimal-base64", "decimal-base64:3"),
        *("decimal-struct", "bits-base64", "json", "time", "time-us"),
    ]
)


@settings(deadline=None)
@given(ANY, TARGETS, ENCODINGS)
def test_whatever_comes_it_fits_or_is_unfit(value: Any, type_: Any, encoding: str | None) -> None:
    try:
        convert("c", value, type_, encoding)
    except RejectedValue as refused:
        str(refused).encode()
