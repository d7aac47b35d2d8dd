"""The view operations of the spec."""

from __future__ import annotations

import orjson

from catalog.api.calls import JSON, NO_CONTENT, Answer, Call
from catalog.api.listing import list_names
from catalog.changes import Entry
from catalog.errors import Invalid
from catalog.names import Identifier, check_name, identifier_from_body
from catalog.service import tables, views


def list_views(call: Call) -> Answer:
    return list_names(call, "view")


def create_view(call: Call) -> Answer:
    identifier = Identifier(call.namespace, check_name(call.json.get("name"), "view"))
    return loaded_view(views.create(call.catalog, call.state, call.asked, identifier, call.json))


def register_view(call: Call) -> Answer:
    identifier = Identifier(call.namespace, check_name(call.json.get("name"), "view"))
    location = call.json.get("metadata-location")
    return loaded_view(views.register(call.catalog, call.state, call.asked, identifier, location))


def load_view(call: Call) -> Answer:
    return loaded_view(tables.load(call.state, call.identifier, "view"))


def view_exists(call: Call) -> Answer:
    tables.require(call.state, call.identifier, "view")
    return Answer(NO_CONTENT)


def replace_view(call: Call) -> Answer:
    named = call.json.get("identifier")
    if named is not None and identifier_from_body(named) != call.identifier:
        raise Invalid("The identifier in the body is not the one in the path")
    requirements = call.list_field("requirements", required=False)
    updates = call.list_field("updates")
    entry = views.replace(call.catalog, call.state, call.asked, call.identifier, requirements, updates)
    return loaded_view(entry)


def drop_view(call: Call) -> Answer:
    tables.drop(call.catalog, call.state, call.asked, call.identifier, "view")
    return Answer(NO_CONTENT)


def rename_view(call: Call) -> Answer:
    source = identifier_from_body(call.json.get("source"))
    target = identifier_from_body(call.json.get("destination"))
    tables.rename(call.catalog, call.state, call.asked, source, target, "view")
    return Answer(NO_CONTENT)


def loaded_view(entry: Entry) -> Answer:
    assert entry.document is not None
    location = orjson.dumps(entry.metadata_location)
    body = b'{"metadata-location":' + location + b',"metadata":' + entry.document + b',"config":{}}'
    return Answer(200, body, [JSON])
