"""Locations: where files of the lake may be.

A `Location` exists only if its text passed every check, and two of them are compared by scheme, bucket and
path segments, never as text: `s3://b/wh-evil` is not inside `s3://b/wh`. There is one canonical form:

    file:/x, file:///x, /x               ->  file:///x
    s3a://b/x, s3n://b/x, S3://b/x       ->  s3://b/x
    one slash at the end                 ->  dropped

Whatever another program might read differently is refused with `Invalid`, not repaired: `.`, `..` and empty
segments, every percent sign (`%2e`, `%2f`, double encoding), backslashes, queries, fragments, wildcards,
quotes and the other metacharacters of policies and shells, control characters, Unicode that is not in normal
form C or that folds to one of these, ports and user names in the bucket, hosts in file locations, and other
schemes.

Nothing here touches storage. Adapters take the path of a location literally: they never percent-decode it.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final, NoReturn
from urllib.parse import unquote

from catalog.errors import Invalid

# An S3 key is at most 1,024 bytes; the files of a table need some of them.
LOCATION_BYTES_MAX = 1_000
SLUG_LENGTH_MAX = 64

_SCHEMES: Final = {"file": "file", "s3": "s3", "s3a": "s3", "s3n": "s3"}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL).fullmatch
_BUCKET = re.compile(r"[a-z0-9](?:[a-z0-9_-]|\.(?!\.)){1,61}[a-z0-9]").fullmatch
_IP_ADDRESS = re.compile(r"[0-9.]+").fullmatch
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]").search
_REFUSED = re.compile(r"""[\\?#%*"'`<>|^${}\[\]]""")
# Engines percent-encode partition values in folder names, and leave '*' as it is.
_REFUSED_IN_FILE = re.compile(r"""[\\?#"'`<>|^${}\[\]]""")
_REFUSED_SEGMENTS: Final = frozenset(("", ".", ".."))
_SLASHES = re.compile(r"[/\\]")
_NOT_IN_SLUG = re.compile(r"[^A-Za-z0-9_.-]+")


class Location:
    """A checked location. Made by `Location.parse` only; immutable; equal if the canonical forms are."""

    __slots__ = ("authority", "canonical", "scheme", "segments", "text")

    text: str  # as the client wrote it
    canonical: str  # the one form to store for comparing
    scheme: str  # "file" or "s3"
    authority: str  # the bucket; "" for files
    segments: tuple[str, ...]

    def __init__(self) -> None:
        raise TypeError("a Location is made by Location.parse")

    @staticmethod
    def parse(text: object) -> Location:
        """The location of a warehouse, namespace, table, view or of its metadata."""
        return _parsed(text, _REFUSED)

    @staticmethod
    def parse_file(text: object) -> Location:
        """The location of a file that an engine wrote, as a manifest names it.

        There `%` and `*` are ordinary characters: a partition value `a/b` makes a folder `p=a%2Fb`.
        """
        location = _parsed(text, _REFUSED_IN_FILE)
        if "%" not in location.text:
            return location  # nothing is encoded in it
        parts = (part for segment in location.segments for part in _SLASHES.split(_fully_decoded(segment)))
        if any(part in (".", "..") for part in parts):
            raise Invalid("Invalid location: encoded '.' and '..' are not allowed")
        return location

    def is_inside(self, root: Location) -> bool:
        """True if this is `root` or below it."""
        return (
            self.scheme == root.scheme
            and self.authority == root.authority
            and self.segments[: len(root.segments)] == root.segments
        )

    def overlaps(self, other: Location) -> bool:
        """True if one of the two is inside the other."""
        return self.is_inside(other) or other.is_inside(self)

    def child(self, *segments: str) -> Location:
        """The location below this one; each segment is one path segment and is checked."""
        for segment in segments:
            if not segment or "/" in segment:
                raise Invalid("Invalid location: a path segment must not be empty or contain '/'")
        return Location.parse("/".join((self.text.removesuffix("/"), *segments)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Location) and self.canonical == other.canonical

    def __hash__(self) -> int:
        return hash(self.canonical)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Location({self.text!r})"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a Location cannot be changed: {name}")


def slug(name: str) -> str:
    """A path segment that is safe in any storage and still tells a person which name it stands for.

    Not unique: two names may have the same slug, so a location needs a uuid beside it.
    """
    # Leading dots and underscores would hide the folder from engines that list files.
    text = _NOT_IN_SLUG.sub("_", name).lstrip("._-")[:SLUG_LENGTH_MAX].rstrip("._-")
    return text or "unnamed"


def _parsed(text: object, refused: re.Pattern[str]) -> Location:
    if not isinstance(text, str):
        raise Invalid("Invalid location: must be a string")
    _check_characters(text, refused)
    scheme, authority, path = _split(text)
    path = path.removesuffix("/")
    segments = tuple(path[1:].split("/")) if path else ()
    if not _REFUSED_SEGMENTS.isdisjoint(segments):
        raise Invalid("Invalid location: empty, '.' and '..' path segments are not allowed")
    if scheme == "file" and not segments:
        raise Invalid("Invalid location: the root of the file system is not allowed")
    return _built(text, scheme, authority, segments)


def _built(text: str, scheme: str, authority: str, segments: tuple[str, ...]) -> Location:
    location = object.__new__(Location)
    canonical = "/".join((f"{scheme}://{authority}", *segments))
    for name, value in (
        ("text", text),
        ("canonical", canonical),
        ("scheme", scheme),
        ("authority", authority),
        ("segments", segments),
    ):
        object.__setattr__(location, name, value)
    return location


def _check_characters(text: str, refused: re.Pattern[str]) -> None:
    if not text or text != text.strip():
        raise Invalid("Invalid location: must not be empty, nor begin or end with a space")
    if _CONTROL(text) is not None:
        raise Invalid("Invalid location: must not contain control characters")
    if len(text.encode()) > LOCATION_BYTES_MAX:
        raise Invalid(f"Invalid location: longer than {LOCATION_BYTES_MAX} bytes")
    found = refused.search(text)
    if found is not None:
        raise Invalid(f"Invalid location: must not contain {found[0]}")
    if not text.isascii():
        _check_unicode(text, refused)


def _check_unicode(text: str, refused: re.Pattern[str]) -> None:
    if not unicodedata.is_normalized("NFC", text):
        raise Invalid("Invalid location: must be in Unicode normal form C (NFC)")
    if any(unicodedata.category(character) == "Cf" for character in text):
        raise Invalid("Invalid location: must not contain invisible characters")
    # What folds to a dot, slash or metacharacter (such as the fullwidth forms) would be one to some programs.
    folded = unicodedata.normalize("NFKC", text)
    segments = folded.split("/")
    if (
        refused.search(folded) is not None
        or len(segments) != text.count("/") + 1
        or any(segment in (".", "..") for segment in segments)
    ):
        raise Invalid(
            "Invalid location: must not contain look-alikes of '.', '/' or other special characters"
        )


def _split(text: str) -> tuple[str, str, str]:
    """Scheme, authority and path (empty or with a slash in front)."""
    if text.startswith("/"):
        return "file", "", text
    parts = _SCHEME(text)
    if parts is None:
        raise Invalid("Invalid location: must be file:///path, s3://bucket/path or an absolute path")
    scheme = _SCHEMES.get(parts[1].lower())
    if scheme is None:
        raise Invalid("Invalid location: only file and s3 locations are supported")
    rest = parts[2]
    if scheme == "file" and rest.startswith("/") and not rest.startswith("//"):
        return scheme, "", rest
    if not rest.startswith("//"):
        raise Invalid(f"Invalid location: {scheme}: must be followed by '//'")
    authority, slash, path = rest[2:].partition("/")
    if scheme == "file" and authority:
        raise Invalid("Invalid location: a file location must not name a host; write file:///path")
    if scheme == "s3":
        _check_bucket(authority)
    return scheme, authority, slash + path


def _check_bucket(bucket: str) -> None:
    if _BUCKET(bucket) is None or _IP_ADDRESS(bucket) is not None:
        raise Invalid(
            "Invalid location: a bucket has 3 to 63 lower-case letters, digits, '.', '_' or '-', "
            "and neither a port nor a user"
        )


def _fully_decoded(segment: str) -> str:
    decoded = unquote(segment)
    while decoded != segment:
        segment, decoded = decoded, unquote(decoded)
    return decoded
