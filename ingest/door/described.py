"""The ASGI routes of the door for OpenAPI. FastAPI cannot see them: they read their bodies themselves."""

from __future__ import annotations

from typing import Any

from ingest.door.asking import SnapshotAnswer
from ingest.formats import FORMATS

Node = dict[str, Any]

JSON = "application/json"
NDJSON = "application/x-ndjson"
CLOUDEVENTS = "application/cloudevents+json"
CLOUDEVENTS_BATCH = "application/cloudevents-batch+json"
KAFKA_IN = "application/vnd.kafka.json.v2+json"
KAFKA_OUT = "application/vnd.kafka.v2+json"

# Errors have Iceberg's form, which whoever puts the document together adds.
ERRORS: dict[str, Node] = {
    "400": {"description": "There is no event in the body, or a parameter is wrong."},
    "401": {"description": "No caller, a token that is wrong or over, or a wrong signature."},
    "403": {"description": "The caller may not write to the warehouse."},
    "404": {"description": "There is no such warehouse."},
    "413": {"description": "The body is larger than the server takes."},
    "415": {"description": "The content encoding is neither gzip nor zstd."},
    "429": {"description": "The journal is full: send the request again after Retry-After seconds."},
    "503": {"description": "Surely not stored: send the request again after Retry-After seconds."},
}
RETRY_AFTER = {"Retry-After": {"description": "Seconds", "schema": {"type": "integer", "minimum": 0}}}


def document() -> Node:
    """`paths` and `components.schemas`, as in an OpenAPI document."""
    namespace = _path("namespace", "Levels of the namespace, joined with %1F or with dots")
    table = _path("table", "The name of the table, percent-encoded; wins over what the events say")
    return {
        "paths": {
            "/cdc": {"post": _post("postChanges", "Bring changes, from any known producer", [])},
            "/cdc/{namespace}/{table}": {
                "post": _post(
                    "postTableChanges", "Bring changes of one table, or plain rows", [namespace, table]
                )
            },
            "/cdc/explain": {"post": _explain("explainChanges", [])},
            "/cdc/explain/{namespace}/{table}": {"post": _explain("explainTableChanges", [namespace, table])},
            "/topics/{topic}": {"post": _topic()},
        },
        "components": {"schemas": _schemas()},
    }


def _post(operation: str, summary: str, path: list[Node]) -> Node:
    return {
        "tags": ["Changes"],
        "summary": summary,
        "description": "The answer means that the changes are durable. With wait=commit it comes when they "
        "are visible to every engine, or says that they are not yet. One bad event does not refuse the "
        "others: it is kept as a dead letter.",
        "operationId": operation,
        "parameters": [*path, *_query(), *_headers()],
        "requestBody": _body(JSON, NDJSON, CLOUDEVENTS, CLOUDEVENTS_BATCH),
        "responses": {
            "200": _answer("Visible, with wait=commit.", "ChangesCommitted"),
            "202": _answer("Durable.", "ChangesReceived"),
            **_errors(),
        },
    }


def _explain(operation: str, path: list[Node]) -> Node:
    return {
        "tags": ["Changes"],
        "summary": "Explain changes",
        "description": "What would become of a request: format, table, key, operation and the type of each "
        "column. Nothing is stored.",
        "operationId": operation,
        "parameters": [*path, *_query(), *_headers()],
        "requestBody": _body(JSON, NDJSON),
        "responses": {"200": _answer("What would happen.", "ChangesExplained"), **_errors()},
    }


def _topic() -> Node:
    topic = _path("topic", "A Kafka topic; names the table where the records do not")
    node = _post("postTopic", "Bring changes as to a Kafka REST proxy", [topic])
    node["requestBody"] = _body(KAFKA_IN, JSON)
    schema = {"$ref": "#/components/schemas/TopicOffsets"}
    committed = {"$ref": "#/components/schemas/ChangesCommitted"}
    node["responses"]["200"] = {
        "description": "Durable.",
        "content": {KAFKA_OUT: {"schema": schema}, JSON: {"schema": committed}},
    }
    node["responses"]["202"] = _answer("With wait=commit: durable, not visible yet.", "ChangesCommitted")
    return node


def _errors() -> Node:
    errors = {status: dict(node) for status, node in ERRORS.items()}
    for status in ("429", "503"):
        errors[status]["headers"] = RETRY_AFTER
    return errors


def _answer(words: str, schema: str) -> Node:
    ref = {"$ref": f"#/components/schemas/{schema}"}
    return {"description": words, "content": {JSON: {"schema": ref}}}


def _body(*types: str) -> Node:
    return {"required": True, "content": {type_: {"schema": {}} for type_ in types}}


def _path(name: str, words: str) -> Node:
    schema = {"type": "string", "minLength": 1}
    return {"name": name, "in": "path", "required": True, "schema": schema, "description": words}


def _parameter(place: str, name: str, schema: Node, words: str) -> Node:
    return {"name": name, "in": place, "required": False, "schema": schema, "description": words}


def _query() -> list[Node]:
    text: Node = {"type": "string"}
    return [
        _parameter("query", "warehouse", text, "The warehouse; main if left out"),
        _parameter("query", "format", {"type": "string", "enum": ["auto", *FORMATS]}, "Who wrote the events"),
        _parameter("query", "key", text, "Key columns, separated by commas, where the events do not say"),
        _parameter("query", "wait", {"type": "string", "enum": ["journal", "commit"]}, "When to answer"),
        _parameter("query", "timeout_s", {"type": "number", "minimum": 0}, "Wait no longer than this"),
        _parameter("query", "verbose", {"type": "string", "enum": ["0", "1"]}, "Answer for every event"),
    ]


def _headers() -> list[Node]:
    name: Node = {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]+$"}
    level: Node = {"type": "string", "enum": ["0", "1", "2", "3"]}
    return [
        _parameter("header", "Idempotency-Key", name, "Makes a repeat of the request known as one"),
        _parameter("header", "X-Source-Id", name, "The source; it counts its events without gaps"),
        _parameter("header", "X-Priority", level, "Which is refused first as the journal fills: 3"),
    ]


def _schemas() -> Node:
    event = {
        "type": "object",
        "required": ["index", "status"],
        "properties": {
            "index": {"type": "integer"},
            "status": {"type": "string", "enum": ["accepted", "duplicate", "dead_lettered", "ignored"]},
            "reason": {"type": ["string", "null"]},
        },
    }
    received = {
        "success": {"type": "boolean"},
        "eventsReceived": {"type": "integer"},
        "eventsAccepted": {"type": "integer"},
        "isDuplicate": {"type": "boolean", "description": "Nothing of it was new"},
        "duplicates": {"type": "integer"},
        "deadLettered": {"type": "integer"},
        "token": {"type": "string", "description": "Names the position: see landed"},
        "format": {"type": "string"},
        "events": {"type": "array", "items": event, "description": "Those that were not plainly accepted"},
        "truncated": {"type": "boolean", "description": "There were more of them"},
    }
    committed = {
        **received,
        "committed": {"type": "boolean", "description": "All of it is visible"},
        "snapshots": {"type": "array", "items": {"$ref": "#/components/schemas/SnapshotAnswer"}},
    }
    optional = {"truncated"}
    offset = {
        "type": "object",
        "properties": {
            "partition": {"type": "integer"},
            "offset": {"type": "integer"},
            "error_code": {"type": ["integer", "null"]},
            "error": {"type": ["string", "null"]},
        },
    }
    return {
        "ChangesReceived": _object(received, optional),
        "ChangesCommitted": _object(committed, optional),
        "TopicOffsets": {
            "type": "object",
            "required": ["offsets"],
            "properties": {
                "key_schema_id": {"type": ["integer", "null"]},
                "value_schema_id": {"type": ["integer", "null"]},
                "offsets": {"type": "array", "items": offset},
            },
        },
        "ChangesExplained": _object(
            {
                "format": {"type": "string"},
                "eventsReceived": {"type": "integer"},
                "events": {"type": "array", "items": {"type": "object"}},
                "tables": {"type": "array", "items": {"type": "object"}},
                "advice": {"type": "array", "items": {"type": "string"}},
            },
            set(),
        ),
        "SnapshotAnswer": SnapshotAnswer.model_json_schema(by_alias=True),
    }


def _object(properties: Node, optional: set[str]) -> Node:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "required": required, "properties": properties}
