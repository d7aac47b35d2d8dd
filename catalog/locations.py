"""Locations, and the rule that every location of a table is inside its warehouse.

Text becomes a `Location` only if it is canonical and safe. The functions below the class check the locations
that a request contains, before storage is used.
"""

from __future__ import annotations

import re
import unicodedata
import uuid
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, NoReturn
from urllib.parse import unquote

from catalog.errors import Invalid
from catalog.models import Warehouse
from catalog.names import Identifier, Namespace

# An S3 key has at most 1,024 bytes, and the file names below a location need some of them.
LOCATION_BYTES_MAX = 1_000
SLUG_LENGTH_MAX = 64
_SCHEMES: Final = {"file": "file", "s3": "s3", "s3a": "s3", "s3n": "s3"}
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL).fullmatch
_BUCKET = re.compile(r"[a-z0-9](?:[a-z0-9_-]|\.(?!\.)){1,61}[a-z0-9]").fullmatch
_IP_ADDRESS = re.compile(r"[0-9.]+").fullmatch
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]").search
_REFUSED = re.compile(r"""[\\?#%*"'`<>|^${}\[\]]""")
# Engines percent-encode partition values in folder names, but not '*'.
_REFUSED_IN_FILE = re.compile(r"""[\\?#"'`<>|^${}\[\]]""")
_REFUSED_SEGMENTS: Final = frozenset(("", ".", ".."))
_SLASHES = re.compile(r"[/\\]")
_NOT_IN_SLUG = re.compile(r"[^A-Za-z0-9_.-]+")
ARCHIVE_PATH = "calve.archive.path"  # where maintenance puts old changes of the table
# Properties that set a path to write to. They are compared without case, so that no variant is missed.
PATH_PROPERTIES = frozenset(
    {
        "write.data.path",
        "write.metadata.path",
        "write.object-storage.path",
        "write.folder-storage.path",
        ARCHIVE_PATH,
    }
)


class Location:
    """A validated location. Created by `Location.parse`; immutable; equal if the canonical forms are
    equal.
    """

    __slots__ = ("authority", "canonical", "scheme", "segments", "text")

    text: str  # as the client sent it
    canonical: str  # the form that is stored and compared
    scheme: str  # "file" or "s3"
    authority: str  # the bucket; "" for files
    segments: tuple[str, ...]

    def __init__(self) -> None:
        raise TypeError("a Location is made by Location.parse")

    @staticmethod
    def parse(text: object) -> Location:
        """The location of a warehouse, namespace, table, view or metadata file."""
        return _parsed(text, _REFUSED)

    @staticmethod
    def parse_file(text: object) -> Location:
        """The location of a data file as a manifest contains it.

        Here `%` and `*` are ordinary characters: the partition value `a/b` becomes the folder `p=a%2Fb`.
        """
        location = _parsed(text, _REFUSED_IN_FILE)
        if "%" not in location.text:
            return location  # nothing to decode
        parts = (part for segment in location.segments for part in _SLASHES.split(_fully_decoded(segment)))
        if any(part in (".", "..") for part in parts):
            raise Invalid("Invalid location: encoded '.' and '..' are not allowed")
        return location

    def is_inside(self, root: Location) -> bool:
        """True if this location is `root` or below it."""
        return (
            self.scheme == root.scheme
            and self.authority == root.authority
            and self.segments[: len(root.segments)] == root.segments
        )

    def overlaps(self, other: Location) -> bool:
        """True if one of the two locations is inside the other."""
        return self.is_inside(other) or other.is_inside(self)

    def child(self, *segments: str) -> Location:
        """The location below this one. Each argument is one path segment and is checked."""
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
    """A readable path segment for a name, safe in any storage.

    It is not unique: two names may have the same slug, so a location also contains a uuid.
    """
    # Engines that list files ignore folders with a leading dot or underscore.
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
    # Some programs treat characters that NFKC folds to a dot, slash or metacharacter (such as fullwidth
    # forms) like that character.
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
    """Scheme, authority and path. The path is empty or begins with a slash."""
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


_root = lru_cache(1024)(Location.parse)  # warehouse roots, of which there are few


def require_inside(warehouse: Warehouse, text: object, what: str, *, file: bool = False) -> Location:
    """The parsed location. Raises Invalid unless it is inside the warehouse."""
    location = Location.parse_file(text) if file else Location.parse(text)
    if not location.is_inside(_root(warehouse.root)):
        raise Invalid(
            f"The {what} {location.text} is outside the warehouse: it must lie below {warehouse.root}"
        )
    return location


def require_below(warehouse: Warehouse, text: object, what: str) -> Location:
    """As `require_inside`, but refuse the root itself: no other table could be created beside such a
    table.
    """
    location = require_inside(warehouse, text, what)
    if location == _root(warehouse.root):
        raise Invalid(
            f"The {what} {location.text} is the warehouse itself: it must lie below {warehouse.root}"
        )
    return location


def check_result(warehouse: Warehouse, before: dict[str, Any] | None, after: dict[str, Any]) -> None:
    """Check the locations of the resulting document, before anything is written."""
    if before is None or before["location"] != after["location"]:
        require_below(warehouse, after["location"], "location")
    if before is None or before.get("properties") is not after.get("properties"):
        for key, value in path_properties(after.get("properties")):
            require_inside(warehouse, value, key)


def default_namespace_location(warehouse: Warehouse, namespace: Namespace) -> str:
    """The default location of a namespace: below the warehouse root, one folder for each level."""
    return "/".join([warehouse.root.rstrip("/"), *(slug(level) for level in namespace.levels)])


def default_location(identifier: Identifier, namespace_location: str) -> str:
    """A new location that no table has used: readable, and unique by its uuid."""
    return f"{namespace_location.rstrip('/')}/{slug(identifier.name)}-{uuid.uuid4().hex}"


def path_properties(properties: object) -> Iterator[tuple[str, object]]:
    if isinstance(properties, dict):
        for key, value in properties.items():
            if isinstance(key, str) and key.lower() in PATH_PROPERTIES:
                yield key, value


def check_updates(warehouse: Warehouse, updates: list[Any]) -> None:
    """Check every location in a list of updates. Malformed updates are left to the metadata engine."""
    for update in updates:
        if not isinstance(update, dict):
            continue
        if str(update.get("action")).lower() == "set-location":
            require_below(warehouse, update.get("location"), "location")
        for field in ("updates", "updated"):  # the second is the older name of the first
            for key, value in path_properties(update.get(field)):
                require_inside(warehouse, value, key)
        for what, location in _files_of(update):
            require_inside(warehouse, location, what, file=True)


def _files_of(update: dict[str, Any]) -> Iterator[tuple[str, object]]:
    snapshot = update.get("snapshot")
    if isinstance(snapshot, dict):
        yield from _files_of_snapshot(snapshot)
    for key in ("statistics", "partition-statistics"):
        value = update.get(key)
        if isinstance(value, dict) and "statistics-path" in value:
            yield "statistics-path", value["statistics-path"]


def _files_of_snapshot(snapshot: dict[str, Any]) -> Iterator[tuple[str, object]]:
    if snapshot.get("manifest-list") is not None:
        yield "manifest-list", snapshot["manifest-list"]
    manifests = snapshot.get("manifests")
    for location in manifests if isinstance(manifests, list) else []:
        yield "manifest", location


def check_metadata(warehouse: Warehouse, metadata: dict[str, Any]) -> None:
    """Check every location in a document that another program wrote."""
    require_below(warehouse, metadata.get("location"), "location")
    for key, value in path_properties(metadata.get("properties")):
        require_inside(warehouse, value, key)
    for snapshot in metadata.get("snapshots") or []:
        for what, location in _files_of_snapshot(snapshot):
            require_inside(warehouse, location, what, file=True)
    for key in ("statistics", "partition-statistics"):
        for statistics in metadata.get(key) or []:
            require_inside(warehouse, statistics.get("statistics-path"), "statistics-path", file=True)
    for old in metadata.get("metadata-log") or []:
        require_inside(warehouse, old.get("metadata-file"), "metadata-log entry", file=True)


def own_locations(metadata: dict[str, Any]) -> tuple[str, ...]:
    """The canonical locations that a table writes to: its location, and path properties outside of it."""
    location = Location.parse(metadata["location"])
    found = [location]
    for _, value in path_properties(metadata.get("properties")):
        location = Location.parse(value)
        if not any(location.is_inside(known) for known in found):
            found.append(location)
    return tuple(location.canonical for location in found)


def new_locations(before: dict[str, Any] | None, after: dict[str, Any]) -> tuple[str, ...]:
    """The locations of `after` that are not locations of `before`."""
    if before is None:
        return own_locations(after)
    if before["location"] == after["location"] and before.get("properties") is after.get("properties"):
        return ()  # the usual commit: no location changed
    known_locations = own_locations(before)
    return tuple(location for location in own_locations(after) if location not in known_locations)
