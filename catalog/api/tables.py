"""The table operations of the spec."""

from __future__ import annotations

import gzip
import hashlib
from typing import NamedTuple

import orjson

from catalog.api.calls import JSON, NO_CONTENT, Answer, Call, json_answer
from catalog.api.listing import list_names
from catalog.changes import Entry
from catalog.errors import Invalid
from catalog.metadata.tables import with_refs_only
from catalog.names import Identifier, check_name, decode_segment, identifier_from_body
from catalog.service import commits, garbage, reports, tables
from catalog.service.documents import document_key

GZIP_BYTES_MIN = 16 * 1024  # below this a gzip saves less than it costs
REFERENCED_BY_MAX = 32
GZIP = (b"content-encoding", b"gzip")
VARY = (b"vary", b"Accept-Encoding")


class Framed(NamedTuple):
    """The body of an answer, in parts: the text of the document is the one that is kept anyway."""

    parts: tuple[bytes, ...]
    tag: bytes
    size: int


def list_tables(call: Call) -> Answer:
    return list_names(call, "table")


def create_table(call: Call) -> Answer:
    body = call.json
    identifier = Identifier(call.namespace, check_name(body.get("name"), "table"))
    staged = body.get("stage-create", False)
    if not isinstance(staged, bool):
        raise Invalid("stage-create must be true or false")
    if staged:
        metadata = tables.stage(call.catalog, call.state, identifier, body)
        return json_answer({"metadata-location": None, "metadata": metadata, "config": {}})
    entry = tables.create(call.catalog, call.state, call.asked, identifier, body)
    return loaded(call, entry)


def register_table(call: Call) -> Answer:
    body = call.json
    identifier = Identifier(call.namespace, check_name(body.get("name"), "table"))
    overwrite = body.get("overwrite", False)
    if not isinstance(overwrite, bool):
        raise Invalid("overwrite must be true or false")
    location = body.get("metadata-location")
    entry = tables.register(call.catalog, call.state, call.asked, identifier, location, overwrite=overwrite)
    return loaded(call, entry)


def load_table(call: Call) -> Answer:
    shape = call.query.get("snapshots", "all")
    if shape not in ("all", "refs"):
        raise Invalid("snapshots must be all or refs")
    _check_referenced_by(call)
    wanted = call.headers.get(b"if-none-match")
    if call.state.is_present or wanted is not None:
        # Which version it is, first: most clients have it, or somebody asked for it a moment ago.
        entry = tables.require(call.state, call.identifier)
        _require_file(call, entry)
        if wanted is not None:
            tag = etag(entry, shape)
            if _matches(wanted, tag):
                return Answer(304, b"", [(b"etag", tag)])
        framed: Framed | None = call.catalog.documents.get(document_key(entry), "framed-" + shape)
        if framed is not None:
            return _answered(call, entry, shape, framed)
    entry = tables.load(call.state, call.identifier)
    _require_file(call, entry)
    return loaded(call, entry, shape)


def _require_file(call: Call, entry: Entry) -> None:
    # A past version may well have lost its file; it is then rebuilt from what came after it.
    if call.state.is_present:
        tables.require_file(call.catalog, entry)


def table_exists(call: Call) -> Answer:
    tables.require(call.state, call.identifier)
    return Answer(NO_CONTENT)


def update_table(call: Call) -> Answer:
    identifier = call.identifier
    named = call.json.get("identifier")
    if named is not None and identifier_from_body(named) != identifier:
        raise Invalid("The identifier in the body is not the one in the path")
    commit = commits.TableCommit(identifier, call.list_field("requirements"), call.list_field("updates"))
    entry = commits.commit_tables(call.catalog, call.state, call.asked, [commit])[0]
    return loaded(call, entry)


def commit_transaction(call: Call) -> Answer:
    changes = []
    for change in call.list_field("table-changes"):
        if not isinstance(change, dict):
            raise Invalid("table-changes must be a list of objects")
        requirements, updates = change.get("requirements"), change.get("updates")
        if not isinstance(requirements, list) or not isinstance(updates, list):
            raise Invalid("Each of table-changes needs the lists requirements and updates")
        changes.append(
            commits.TableCommit(identifier_from_body(change.get("identifier")), requirements, updates)
        )
    if not changes:
        raise Invalid("table-changes must not be empty")
    commits.commit_tables(call.catalog, call.state, call.asked, changes)
    return Answer(NO_CONTENT)


def drop_table(call: Call) -> Answer:
    garbage.drop_table(
        call.catalog, call.state, call.asked, call.identifier, purge=call.flag("purgeRequested")
    )
    return Answer(NO_CONTENT)


def unregister_table(call: Call) -> Answer:
    return unregistered(tables.unregister(call.catalog, call.state, call.asked, call.identifier))


def unregistered(entry: Entry) -> Answer:
    assert entry.document is not None
    location = orjson.dumps(entry.metadata_location)
    return Answer(200, b'{"metadata-location":' + location + b',"metadata":' + entry.document + b"}", [JSON])


def rename_table(call: Call) -> Answer:
    source = identifier_from_body(call.json.get("source"))
    target = identifier_from_body(call.json.get("destination"))
    tables.rename(call.catalog, call.state, call.asked, source, target)
    return Answer(NO_CONTENT)


def report_metrics(call: Call) -> Answer:
    reports.keep(call.catalog, call.state, call.principal, call.identifier, call.json)
    return Answer(NO_CONTENT)


def etag(entry: Entry, shape: str) -> bytes:
    """Differs with the version of the table and with the shape of the answer."""
    text = f"{entry.uuid}\0{entry.version}\0{entry.metadata_location}\0{shape}"
    return b'"' + hashlib.blake2b(text.encode(), digest_size=12).hexdigest().encode() + b'"'


def loaded(call: Call, entry: Entry, shape: str = "all") -> Answer:
    """LoadTableResult or CommitTableResponse: the stored bytes with a frame around them."""
    text = _shaped(call, entry, shape)
    before = b'{"metadata-location":' + orjson.dumps(entry.metadata_location) + b',"metadata":'
    framed = Framed((before, text, b',"config":{}}'), etag(entry, shape), len(before) + len(text))
    call.catalog.documents.put(document_key(entry), "framed-" + shape, framed, framed.size)
    return _answered(call, entry, shape, framed)


def _answered(call: Call, entry: Entry, shape: str, framed: Framed) -> Answer:
    headers = [JSON, (b"etag", framed.tag)]
    if framed.size >= GZIP_BYTES_MIN and b"gzip" in call.headers.get(b"accept-encoding", b""):
        return Answer(200, _gzipped(call, entry, shape, framed), [*headers, GZIP, VARY])
    return Answer(200, headers=headers, parts=framed.parts)


def _shaped(call: Call, entry: Entry, shape: str) -> bytes:
    assert entry.document is not None
    if shape == "all":
        return entry.document
    key = document_key(entry)
    text: bytes | None = call.catalog.documents.get(key, "refs")
    if text is None:
        text = orjson.dumps(with_refs_only(call.catalog.documents.parsed(key, entry.document)))
        call.catalog.documents.put(key, "refs", text, len(text))
    return text


def _gzipped(call: Call, entry: Entry, shape: str, framed: Framed) -> bytes:
    """Compressed once for each version, then kept: large documents are read more often than written."""
    key = document_key(entry)
    zipped: bytes | None = call.catalog.documents.get(key, "gzip-" + shape)
    if zipped is None:
        zipped = gzip.compress(b"".join(framed.parts), 1)
        call.catalog.documents.put(key, "gzip-" + shape, zipped, len(zipped))
    return zipped


def _matches(header: bytes, tag: bytes) -> bool:
    return any(part.strip() in (b"*", tag, b"W/" + tag) for part in header.split(b","))


def _check_referenced_by(call: Call) -> None:
    """The chain of views that leads here.

    It must be well formed and bounded; rights through views come later.
    """
    if "referenced-by" not in call.query:
        return
    raw = call.raw_query.get("referenced-by")
    if not raw:
        return
    views = raw.split(",")
    if len(views) > REFERENCED_BY_MAX:
        raise Invalid(f"referenced-by may name at most {REFERENCED_BY_MAX} views")
    for view in views:
        namespace, separator, name = view.replace("%1f", "%1F").rpartition("%1F")
        if not separator:
            raise Invalid("referenced-by must be a list of namespace, separator and view name")
        call.parsed_namespace(namespace)
        decode_segment(name)
