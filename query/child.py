"""A query process: DuckDB with the lake attached, confined by the kernel, one query at a time.

    python -m query.child FD

The server starts it with one end of a socket pair, and sends a `Configuration` first. The process loads DuckDB's
extensions, confines itself (`sandbox.py`), answers {"ready": ...} and then takes requests until the server closes
the connection:

    {"prepare": {"sql"}}                -> {"statement": {...}}        parsed and checked, nothing is run
    {"run": {"sql", "format", ...}}     -> pieces of the body, then {"done": {...}}

Either may answer {"error": {"type", "message"}}. The server kills the process to cancel a query.
"""

from __future__ import annotations

import importlib
import socket
import sys
import time
from pathlib import Path
from typing import Any

import duckdb

from query import formats, frames, sandbox, sql

EXTENSIONS = ("avro", "httpfs", "iceberg")
BATCH_ROWS = 4096
ADDRESS_SPACE_EXTRA_BYTES = 8 * 2**30  # code, mapped files and allocator arenas count too


class QueryProcess:
    """The state of one process: its connection to the server and its DuckDB."""

    def __init__(self, server: socket.socket) -> None:
        self._server = server
        configuration = frames.receive_message(server)
        self._endpoint: str = configuration["endpoint"]
        self._duckdb = _open(configuration)
        ports = configuration["tcp_ports"]
        paths = [Path(path) for path in configuration["read_paths"]]
        own = [Path(path) for path in {sys.prefix, sys.base_prefix, *sys.path} if path]
        sandbox.limit_resources(configuration["memory_bytes_max"] + ADDRESS_SPACE_EXTRA_BYTES)
        confined = sandbox.confine([*paths, *own], ports) if configuration["confine"] else []
        frames.send_message(server, {"ready": {"confined": confined}})

    def serve(self) -> None:
        while True:
            request = frames.receive_message(self._server)
            try:
                if "prepare" in request:
                    answer = self._prepare(request["prepare"])
                else:
                    answer = self._run(request["run"])
            except sql.Refused as refused:
                answer = _error("Refused", str(refused))
            except duckdb.Error as error:
                answer = _error(type(error).__name__, str(error))
            except MemoryError:
                answer = _error("OutOfMemoryException", "the query needs more memory than it may have")
            frames.send_message(self._server, answer)

    def _prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        statement = sql.read_statement(self._duckdb, request["sql"])
        return {
            "statement": {
                "is_explain": statement.is_explain,
                "parameters": statement.parameters,
                "tables": [table.as_json() for table in statement.tables],
            }
        }

    def _run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Attach what the query needs, run it, send the result, detach."""
        connection, attached = self._duckdb.cursor(), []
        try:
            for attachment in request["attachments"]:
                connection.execute(_attach(attachment, self._endpoint))
                attached.append(attachment["name"])
            if request.get("schema"):
                catalog, schema = request["schema"]
                connection.execute(f"USE {_quoted(catalog)}.{_quoted(schema)}")
            aliases, versions = request.get("aliases") or {}, request.get("versions") or {}
            text = request["sql"]
            if aliases or versions:
                text = sql.rewritten(connection, text, aliases, versions)
            return self._send_result(connection, text, request)
        finally:
            connection.execute("USE memory.main")
            for name in attached:
                connection.execute(f"DETACH {_quoted(name)}")
            connection.close()

    def _send_result(
        self, connection: duckdb.DuckDBPyConnection, text: str, request: dict[str, Any]
    ) -> dict[str, Any]:
        started_s = time.monotonic()
        result = connection.execute(text, request.get("parameters") or None)
        types = [str(column[1]) for column in result.description or ()]
        reader = result.to_arrow_reader(BATCH_ROWS)
        out = formats.writer(request["format"], reader.schema, types)
        rows = size = 0
        self._send(out.head())
        for batch in reader:
            piece = out.rows(batch)
            rows, size = rows + batch.num_rows, size + len(piece)
            if size > request["result_bytes_max"]:
                limit = request["result_bytes_max"]
                return _error("ResultTooLarge", f"the result has more than {limit} bytes: ask for less of it")
            self._send(piece)
        elapsed_ms = round((time.monotonic() - started_s) * 1000, 3)
        summary = request["summary"] | {"rowCount": rows, "elapsed_ms": elapsed_ms}
        self._send(out.tail(summary))
        return {"done": {"rows": rows, "bytes": size, "elapsed_ms": elapsed_ms}}

    def _send(self, piece: bytes) -> None:
        if piece:
            frames.send(self._server, frames.DATA, piece)


def _open(configuration: dict[str, Any]) -> duckdb.DuckDBPyConnection:
    """DuckDB with its extensions, and nothing that SQL could change or reach."""
    connection = duckdb.connect(config={"extension_directory": "/nonexistent"})
    for name in EXTENSIONS:
        package = importlib.import_module(f"duckdb_extension_{name}").__file__
        assert package is not None
        path = Path(package).parent / "extensions" / f"v{duckdb.__version__}" / f"{name}.duckdb_extension"
        connection.execute(f"LOAD '{path}'")
    settings = {
        "allow_persistent_secrets": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        # DuckDB 1.5.5 read wrong rows of a table with deletion vectors through this cache.
        "enable_external_file_cache": "false",
        "python_enable_replacements": "false",
        "temp_directory": "''",
        "TimeZone": "'UTC'",
        "memory_limit": f"'{configuration['memory_bytes_max'] // 2**20}MiB'",
        "threads": str(configuration["threads"]),
    }
    for key, value in settings.items():
        connection.execute(f"SET {key}={value}")
    if configuration.get("s3"):
        connection.execute(_secret(configuration["s3"]))
    connection.execute("FROM duckdb_secrets()")  # opens the secret storage while files can still be reached
    directories = ", ".join(_text(path) for path in configuration["data_paths"])
    connection.execute(f"SET allowed_directories=[{directories}]")
    connection.execute("SET enable_external_access=false")
    connection.execute("SET lock_configuration=true")
    return connection


def _attach(attachment: dict[str, Any], endpoint: str) -> str:
    """With the caller's own token, so that the catalog decides what the query may read."""
    token = attachment.get("token")
    authorization = f"TOKEN {_text(token)}" if token else "AUTHORIZATION_TYPE 'none'"
    return (
        f"ATTACH {_text(attachment['reference'])} AS {_quoted(attachment['name'])} "
        f"(TYPE iceberg, ENDPOINT {_text(endpoint)}, {authorization}, READ_ONLY)"
    )


def _secret(s3: dict[str, Any]) -> str:
    options = ", ".join(f"{key} {_text(str(value))}" for key, value in s3.items())
    return f"CREATE SECRET lake (TYPE s3, {options})"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _error(type_: str, message: str) -> dict[str, Any]:
    return {"error": {"type": type_, "message": message}}


def main() -> None:
    with socket.socket(fileno=int(sys.argv[1])) as server:
        try:
            QueryProcess(server).serve()
        except (frames.Closed, BrokenPipeError, ConnectionResetError):
            return  # the server is gone, or does not want the rest


if __name__ == "__main__":
    main()
