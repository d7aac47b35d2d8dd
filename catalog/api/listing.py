"""Lists of tables and views.

A whole list is kept with the number it was read at, and made again when that moves.
"""

from __future__ import annotations

from catalog.api.calls import JSON, Answer, Call, json_answer
from catalog.api.paging import page
from catalog.changes import Kind
from catalog.service import namespaces


def list_names(call: Call, kind: Kind) -> Answer:
    namespace = call.namespace
    number = None if "pageToken" in call.query else call.state.number()
    if number is None:
        return _answer(call, kind)
    # Every change of a name takes a number, so under the same number the list is the same. A warehouse that
    # is dropped and created again starts at number 0 again.
    version = f"{call.state.warehouse.created_ms} {number}"
    key, form = (call.state.prefix, version), f"{kind}s of {namespace.key}"
    body: bytes | None = call.catalog.documents.get(key, form)
    if body is not None:
        return Answer(200, body, [JSON])
    answer = _answer(call, kind)
    call.catalog.documents.put(key, form, answer.body, len(answer.body))
    return answer


def _answer(call: Call, kind: Kind) -> Answer:
    namespace = call.namespace
    namespaces.require_namespace(call.state, namespace)
    key, levels = namespace.key, list(namespace.levels)
    names, next_token = page(call, key, lambda after, limit: call.state.names(key, kind, after, limit))
    identifiers = [{"namespace": levels, "name": name} for name in names]
    return json_answer({"identifiers": identifiers, "next-page-token": next_token})
