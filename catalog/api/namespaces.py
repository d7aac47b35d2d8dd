"""The namespace operations of the spec."""

from __future__ import annotations

from catalog.api.calls import NO_CONTENT, Answer, Call, json_answer
from catalog.api.paging import page
from catalog.names import Namespace, namespace_from_levels
from catalog.service import namespaces


def list_namespaces(call: Call) -> Answer:
    raw_parent = call.raw_query.get("parent", "")
    parent = ""
    if not raw_parent:
        _ = call.state.warehouse  # an empty list must not stand for a missing warehouse
    else:
        namespace = call.parsed_namespace(raw_parent)
        namespaces.require_namespace(call.state, namespace)
        parent = namespace.key
    keys, next_token = page(call, parent, lambda after, limit: call.state.children(parent, after, limit))
    levels = [key.split("\x1f") for key in keys]
    return json_answer({"namespaces": levels, "next-page-token": next_token})


def create_namespace(call: Call) -> Answer:
    namespace = namespace_from_levels(call.json.get("namespace"))
    properties = namespaces.create(
        call.catalog, call.state, call.asked, namespace, call.json.get("properties")
    )
    return _answer(namespace, properties)


def load_namespace(call: Call) -> Answer:
    return _answer(call.namespace, namespaces.properties_of(call.state, call.namespace))


def namespace_exists(call: Call) -> Answer:
    namespaces.require_namespace(call.state, call.namespace)
    return Answer(NO_CONTENT)


def drop_namespace(call: Call) -> Answer:
    namespaces.drop(call.catalog, call.state, call.asked, call.namespace)
    return Answer(NO_CONTENT)


def update_properties(call: Call) -> Answer:
    body = call.json
    answer = namespaces.update_properties(
        call.catalog, call.state, call.asked, call.namespace, body.get("updates"), body.get("removals")
    )
    return json_answer(answer)


def _answer(namespace: Namespace, properties: dict[str, str]) -> Answer:
    return json_answer({"namespace": list(namespace.levels), "properties": properties})
