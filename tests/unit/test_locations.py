"""Locations: one canonical form, comparison by segments, and a long list of ways out that are all refused."""

from __future__ import annotations

import copy
import posixpath
import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from catalog.errors import Invalid
from catalog.locations import LOCATION_BYTES_MAX, Location, slug

# Each of these is refused wherever a location is accepted.
HOSTILE = [
    "",
    " ",
    "relative/path",
    "./x",
    "../x",
    "~/x",
    "C:\\x",
    "s3",
    "s3:",
    "s3:x",
    "s3:/bucket/x",
    "s3://",
    "s3:///x",
    "s3://bu/x",
    "s3://bucket/wh/../other",
    "s3://bucket/wh/..",
    "s3://bucket/..",
    "s3://bucket/./wh",
    "s3://bucket/wh/.",
    "s3://bucket//wh",
    "s3://bucket/wh//t",
    "s3://bucket/wh//",
    "s3://bucket/wh/%2e%2e/other",
    "s3://bucket/wh/%2E./other",
    "s3://bucket/wh/.%2e/other",
    "s3://bucket/wh%2fother",
    "s3://bucket/wh%5c..%5cother",
    "s3://bucket/wh/%252e%252e/other",
    "s3://bucket/wh/%c0%ae%c0%ae/other",
    "s3://bucket/wh/%",
    "s3://bucket/wh\\..\\other",
    "s3://bucket/wh/t?acl",
    "s3://bucket/wh/t?versionId=1",
    "s3://bucket/wh/t#fragment",
    "s3://bucket/wh/*",
    "s3://bucket/wh/t[0-9]",
    "s3://bucket/wh/{a,b}",
    "s3://bucket/wh/${aws:username}",
    "s3://bucket/wh/$(id)",
    "s3://bucket/wh/'||true||'",
    's3://bucket/wh/"',
    "s3://bucket/wh/`id`",
    "s3://bucket/wh/a|b",
    "s3://bucket/wh/a<b",
    "s3://bucket/wh/a^b",
    "s3://bucket/wh/\x00",
    "s3://bucket/wh/a\nb",
    "s3://bucket/wh/a\x1fb",
    "s3://bucket/wh/a\x7f",
    "s3://bucket/wh/a\u2028b",
    "s3://bucket/wh/\ud800",
    "s3://bucket/wh/ ",
    "\ts3://bucket/wh",
    "s3://user@bucket/wh",
    "s3://user:secret@bucket/wh",
    "s3://bucket@evil/wh",
    "s3://bucket:9000/wh",
    "s3://BUCKET/wh",
    "s3://Bucket/wh",
    "s3://buc..ket/wh",
    "s3://bucket./wh",
    "s3://-bucket/wh",
    "s3://bückét/wh",
    "s3://169.254.169.254/latest",
    "s3://[::1]/wh",
    "s3://*/wh",
    "s3://../wh",
    "s3://bucket/wh/e\u0301",
    "s3://bucket/wh/\uff0e\uff0e/other",
    "s3://bucket/wh/\u2025/other",
    "s3://bucket/wh/\u2024\u2024/other",
    "s3://bucket/wh\uff0fother",
    "s3://bucket/wh/\u2100",
    "s3://bucket/wh/\uff05",
    "s3://bucket/wh/\uff0a",
    "s3://bucket/wh/.\u200b.",
    "s3://bucket/wh/\u202ex",
    "s3://bucket/wh/\ufeff",
    "http://169.254.169.254/latest/meta-data",
    "https://bucket.s3.amazonaws.com/wh",
    "ftp://host/x",
    "gs://bucket/wh",
    "abfss://c@a.dfs.core.windows.net/wh",
    "hdfs://host/x",
    "jar:file:///x",
    "file+s3://bucket/x",
    "file:",
    "file:x",
    "file:///",
    "file://",
    "file:/",
    "/",
    "//",
    "//host/share",
    "///x",
    "file://host/x",
    "file://localhost/x",
    "file:////x",
    "file:////etc/passwd",
    "file://../etc/passwd",
    "file:///wh/../etc/passwd",
    "file:///..",
    "/wh/../etc/passwd",
    "/wh/./x",
    "/wh//x",
    "/wh/%2e%2e/etc",
    "/wh\x00/etc",
    "x" * 5000,
    "s3://bucket/" + "x" * LOCATION_BYTES_MAX,
    "s3://bucket/" + "é" * (LOCATION_BYTES_MAX // 2),
]

NORMAL = [
    ("s3://bucket/wh", "s3://bucket/wh"),
    ("s3://bucket/wh/", "s3://bucket/wh"),
    ("s3://bucket", "s3://bucket"),
    ("s3://bucket/", "s3://bucket"),
    ("s3a://bucket/wh", "s3://bucket/wh"),
    ("s3n://bucket/wh", "s3://bucket/wh"),
    ("S3://bucket/wh", "s3://bucket/wh"),
    ("S3A://bucket/Wh", "s3://bucket/Wh"),
    ("s3://my.bucket_1/wh/a b", "s3://my.bucket_1/wh/a b"),
    ("s3://bucket/wh/...", "s3://bucket/wh/..."),
    ("s3://bucket/wh/..a", "s3://bucket/wh/..a"),
    ("s3://bucket/wh/p=1/t@x,y;z&w!(1)~:+-_.", "s3://bucket/wh/p=1/t@x,y;z&w!(1)~:+-_."),
    ("s3://bucket/wh/表", "s3://bucket/wh/表"),
    ("file:///x/y", "file:///x/y"),
    ("file:/x/y", "file:///x/y"),
    ("FILE:/x/y", "file:///x/y"),
    ("/x/y", "file:///x/y"),
    ("/x/y/", "file:///x/y"),
    ("file:///C:/x", "file:///C:/x"),
]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_location_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match=r"^Invalid location: "):
        Location.parse(text)


@pytest.mark.parametrize("value", [None, 1, b"s3://bucket/wh", ["s3://bucket/wh"], {}])
def test_only_text_is_a_location(value: object) -> None:
    with pytest.raises(Invalid, match="must be a string"):
        Location.parse(value)


@pytest.mark.parametrize(("text", "canonical"), NORMAL)
def test_the_text_is_kept_and_the_canonical_form_is_one(text: str, canonical: str) -> None:
    location = Location.parse(text)
    assert location.text == str(location) == text
    assert location.canonical == canonical
    assert location == Location.parse(canonical)
    assert hash(location) == hash(Location.parse(canonical))
    assert location.scheme == canonical.partition(":")[0]


def test_a_location_cannot_be_built_or_changed_by_hand() -> None:
    with pytest.raises(TypeError):
        Location()
    location = Location.parse("s3://bucket/wh")
    with pytest.raises(AttributeError):
        location.text = "s3://bucket/other"
    with pytest.raises(AttributeError):
        copy.copy(location).segments = ()
    assert location != "s3://bucket/wh"
    assert repr(location) == "Location('s3://bucket/wh')"


@pytest.mark.parametrize(
    "inside",
    ["s3://bucket/wh", "s3://bucket/wh/", "s3a://bucket/wh/t", "S3N://bucket/wh/ns/t", "s3://bucket/wh/wh"],
)
def test_inside(inside: str) -> None:
    root = Location.parse("s3://bucket/wh/")
    assert Location.parse(inside).is_inside(root)
    assert Location.parse(inside).overlaps(root)
    assert root.overlaps(Location.parse(inside))


@pytest.mark.parametrize(
    "outside",
    [
        "s3://bucket/wh-evil",
        "s3://bucket/wh-evil/t",
        "s3://bucket/wh2",
        "s3://bucket/w",
        "s3://bucket/WH/t",
        "s3://bucket/other/wh",
        "s3://bucket2/wh/t",
        "s3://bucket.evil.com/wh/t",
        "file:///wh/t",
        "file:///bucket/wh/t",
        "/wh",
    ],
)
def test_a_sibling_or_look_alike_is_outside(outside: str) -> None:
    root = Location.parse("s3://bucket/wh")
    assert not Location.parse(outside).is_inside(root)
    assert not Location.parse(outside).overlaps(root)


def test_a_parent_is_outside_but_overlaps() -> None:
    parent, child = Location.parse("s3://bucket"), Location.parse("s3://bucket/wh")
    assert not parent.is_inside(child)
    assert parent.overlaps(child)
    assert child.overlaps(parent)


def test_a_child_is_inside_and_keeps_the_way_the_client_writes() -> None:
    child = Location.parse("s3a://bucket/wh/").child("ns", "t-1")
    assert child.text == "s3a://bucket/wh/ns/t-1"
    assert child.canonical == "s3://bucket/wh/ns/t-1"
    assert Location.parse("s3://bucket/").child("t").text == "s3://bucket/t"


@pytest.mark.parametrize(
    "segment", ["", ".", "..", "a/b", "/", "%2e%2e", "a\\b", "*", "\x00", "a ", "\uff0e\uff0e"]
)
def test_a_child_cannot_climb(segment: str) -> None:
    with pytest.raises(Invalid):
        Location.parse("s3://bucket/wh").child(segment)


# --- files that engines wrote -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/wh/t/data/p=a%2Fb/f.parquet",
        "s3://bucket/wh/t/data/p=%2E%2E/f.parquet",
        "s3://bucket/wh/t/data/p=100%25/f*.parquet",
    ],
)
def test_percent_signs_in_the_name_of_a_data_file_are_literal(text: str) -> None:
    location = Location.parse_file(text)
    assert location.canonical == text
    assert location.is_inside(Location.parse("s3://bucket/wh/t"))


@pytest.mark.parametrize(
    "text", [text for text in HOSTILE if "*" not in text and not re.search("%|\uff05|\uff0a", text)]
)
def test_all_else_that_is_hostile_is_refused_in_the_name_of_a_data_file(text: str) -> None:
    with pytest.raises(Invalid):
        Location.parse_file(text)


@pytest.mark.parametrize("dots", ["..", ".", "%2e%2e", "%2E.", "%252e%252e", "%25252e", "*/.."])
def test_a_data_file_cannot_climb_by_encoding(dots: str) -> None:
    with pytest.raises(Invalid):
        Location.parse_file(f"s3://bucket/wh/{dots}/other")


# --- against an independent model ---------------------------------------------------------------------------

_PIECES = st.sampled_from(
    [
        "wh",
        "wh-evil",
        "t",
        ".",
        "..",
        "",
        "%2e%2e",
        "%2f",
        "\\",
        "a b",
        "WH",
        "\uff0e\uff0e",
        "e\u0301",
        "?",
        "...",
    ]
)
_PREFIXES = st.sampled_from(
    [
        "s3://bucket",
        "s3a://bucket",
        "S3://bucket",
        "s3://bucket2",
        "s3://BUCKET",
        "file://",
        "file:",
        "",
        "s3:",
        "//",
    ]
)


@st.composite
def _texts(draw: st.DrawFn) -> str:
    pieces = draw(st.lists(_PIECES | st.text(max_size=4), max_size=6))
    return draw(_PREFIXES) + "/" + "/".join(pieces)


def _resolved(text: str, decode: bool) -> tuple[str, str]:
    """Where a program ends up that turns backslashes and resolves dots, and perhaps decodes."""
    scheme, colon, rest = text.partition(":")
    if not colon or "/" in scheme:
        scheme, rest = "file", text
    scheme = {"s3a": "s3", "s3n": "s3"}.get(scheme.lower(), scheme.lower())
    if decode:
        for code, character in (("%2e", "."), ("%2f", "/"), ("%5c", "\\")):
            rest = rest.replace(code, character).replace(code.upper(), character)
        rest = unicodedata.normalize("NFKC", rest)
    rest = rest.replace("\\", "/")
    return scheme, posixpath.normpath("/" + rest.lstrip("/"))


def _is_inside(scheme: str, path: str) -> bool:
    return scheme == "s3" and (path == "/bucket/wh" or path.startswith("/bucket/wh/"))


@given(_texts())
@example("s3://bucket/wh/../wh-evil")
@example("s3://bucket/%2f/wh")
@example("s3://bucket/wh-evil/t")
@example("s3://bucket/wh/\uff0e\uff0e/t")
def test_nothing_outside_a_root_is_ever_inside_it(text: str) -> None:
    root = Location.parse("s3://bucket/wh")
    for parse in (Location.parse, Location.parse_file):
        try:
            location = parse(text)
        except Invalid:
            continue
        model = all(_is_inside(*_resolved(text, decode)) for decode in (False, True))
        assert location.is_inside(root) == model
        assert Location.parse_file(location.canonical).canonical == location.canonical


@given(st.text(max_size=60))
def test_parse_answers_or_refuses_but_never_fails(text: str) -> None:
    for prefix in ("", "s3://bucket/", "file:/", "/", "s3:"):
        try:
            location = Location.parse(prefix + text)
        except Invalid:
            continue
        assert location.text == prefix + text


# --- slugs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders", "orders"),
        ("Orders.v2-x_y", "Orders.v2-x_y"),
        ("a b/c", "a_b_c"),
        ("..", "unnamed"),
        (".", "unnamed"),
        ("", "unnamed"),
        ("表", "unnamed"),
        ("../../etc/passwd", "etc_passwd"),
        ("_hidden", "hidden"),
        (".hidden.", "hidden"),
        ("x" * 200, "x" * 64),
        ("x" * 63 + "._y", "x" * 63),
    ],
)
def test_a_slug_is_readable(name: str, expected: str) -> None:
    assert slug(name) == expected


@given(st.text())
def test_a_slug_is_one_safe_segment(name: str) -> None:
    segment = slug(name)
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", segment)
    assert slug(segment) == segment
    assert Location.parse("s3://bucket/wh").child(segment).segments == ("wh", segment)
