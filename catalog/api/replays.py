"""Idempotency keys at the edge: a request whose key has landed is answered again without being done again.

Authorisation has happened before this. Documents are answered as they are now, which the spec allows; one
that has gone since is read from the metadata file that the request made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import orjson

from catalog.api.calls import JSON, NO_CONTENT, Answer, Call, json_answer
from catalog.api.errors import error_answer, error_body
from catalog.api.tables import loaded, unregistered
from catalog.api.views import loaded_view
from catalog.changes import Entry, KeyTaken, Kind, Record
from catalog.errors import CatalogError, CommitFailed, CommitStateUnknown, Invalid
from catalog.names import Identifier, check_name
from catalog.service.files import decode_metadata

Handler = Callable[[Call], Answer]

# Final refusals: the same request would be refused again. Others may succeed later and are not remembered.
REMEMBERED = frozenset({400, 404, 406, 409, 422})


def run_once(call: Call, handler: Handler) -> Answer:
    """The handler's answer, or the one that this key had before."""
    call.record = call.idempotency_record()
    if call.record is None:
        return handler(call)
    known = _known(call, call.record)
    if known is not None:
        return known
    try:
        return handler(call)
    except KeyTaken:
        return _known(call, call.record) or error_answer(
            CommitFailed("This request is being carried out; try again")
        )
    except CommitStateUnknown:
        raise  # nothing that is found out now may make it look certain
    except CatalogError as error:
        # A twin with the same key may have landed while this one was refused because of it.
        known = _known(call, call.record)
        if known is not None:
            return known
        if error.status in REMEMBERED:
            _remember_refusal(call, call.record, error)
        raise


def _known(call: Call, record: Record) -> Answer | None:
    found = call.catalog.records.record(record, call.catalog.now_ms())
    if found is None:
        return None
    if found.body_hash != record.body_hash:
        raise Invalid("This Idempotency-Key belongs to another request: use a new key for a new request")
    if found.status >= 400:
        refusal = orjson.loads(found.answer)
        return Answer(found.status, error_body(refusal["message"], refusal["type"], found.status), [JSON])
    if found.status == NO_CONTENT:
        return Answer(NO_CONTENT)
    return _again(call, orjson.loads(found.answer))


def _remember_refusal(call: Call, record: Record, error: CatalogError) -> None:
    answer = orjson.dumps({"message": error.message, "type": error.type}).decode()
    call.catalog.records.remember(replace(record, status=error.status, answer=answer), call.catalog.now_ms())


def _again(call: Call, answer: dict[str, str]) -> Answer:
    """A success with a body, made again from what was remembered of it."""
    match call.operation.id:
        case "createNamespace":
            return json_answer({"namespace": call.json["namespace"], "properties": answer})
        case "updateProperties":
            return json_answer(answer)
        case "unregisterTable":
            return unregistered(_from_file(call, answer, "table"))
        case "replaceView" | "registerView":
            return loaded_view(_entry(call, answer, "view"))
        case _:
            return loaded(call, _entry(call, answer, "table"))


def _entry(call: Call, answer: dict[str, str], kind: Kind) -> Entry:
    identifier = _identifier(call, kind)
    entry = call.state.load(identifier.namespace.key, identifier.name)
    if entry is not None and entry.kind == kind:
        return entry
    return _from_file(call, answer, kind)


def _identifier(call: Call, kind: Kind) -> Identifier:
    if "table" in call.path or "view" in call.path:
        return call.identifier
    return Identifier(call.namespace, check_name(call.json.get("name"), kind))


def _from_file(call: Call, answer: dict[str, str], kind: Kind) -> Entry:
    identifier = _identifier(call, kind)
    location = answer["metadata-location"]
    text = decode_metadata(location, call.catalog.files.read(location))
    uuid = orjson.loads(text)[f"{kind}-uuid"]
    return Entry(kind, identifier.namespace.key, identifier.name, uuid, 0, location, text)
