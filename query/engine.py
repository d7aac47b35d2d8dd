"""DuckDB in a query process. It serves the requests of the server until the server closes the connection.

    {"prepare": {"sql"}}             -> {"statement": {...}}: parsed and checked, nothing is run
    {"run": {"sql", "format", ...}}  -> pieces of the body, {"done": {...}}, and the last piece

The rows of the overlays of a run (overlay.py) follow it, each in a frame of its own.

Either may return {"error": {"type", "message"}} instead. The server kills the process to cancel a query.
"""

from __future__ import annotations

import importlib
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import duckdb
import pyarrow as pa

from query import attachments, formats, frames, media_types, profile, sandbox, sql
from query.overlay import OverlayShape, overlay_sql

EXTENSIONS = ("avro", "httpfs", "iceberg")
BATCH_ROWS = 4096
PIECE_BYTES = 64 * 1024
PIECE_S = 0.05  # a smaller piece is sent after this time, so that the first rows arrive early
# Beyond DuckDB's own limit: rows that are being sent, Python's objects, reserves of allocators.
MEMORY_EXTRA_BYTES = 512 * 2**20
_FOREIGN_TO_ARROW = re.compile(r"\b(UHUGEINT|BIT|BIGNUM|VARIANT|UNION|TIME WITH TIME ZONE)\b")
INTERRUPTED = "INTERRUPT Error"
# DuckDB cannot continue after these errors.
FATAL = (duckdb.InternalException, duckdb.FatalException)


class Engine:
    """DuckDB, and the connection to the server."""

    def __init__(self, server: socket.socket, configuration: dict[str, Any], status: IO[str]) -> None:
        """`status` is the open file /proc/self/status of this process."""
        self._server = server
        self._endpoint: str = configuration["endpoint"]
        self._duckdb = open_duckdb(configuration)
        self._attachments = attachments.Attachments(self._duckdb, self._endpoint)
        self._warm_up()
        confine(self._duckdb, configuration, status)

    def serve(self) -> None:
        """Serve requests until the server closes the connection, or DuckDB cannot continue."""
        while True:
            request = frames.receive_message(self._server)
            is_fatal = False
            answer: dict[str, Any] | None
            try:
                if "prepare" in request:
                    answer = self._prepare(request["prepare"])
                else:
                    answer = self._run(request["run"])
            except sql.Refused as refused:
                answer = _error("Refused", str(refused))
            except duckdb.Error as error:
                is_fatal = isinstance(error, FATAL)
                # The rest of the message points into the SQL with full names, which the caller does not know.
                answer = _error(type(error).__name__, str(error).partition("\n\nLINE ")[0])
            except (pa.ArrowException, OSError) as error:
                # Arrow wraps DuckDB's errors while rows are fetched.
                text = str(error).partition("\n\nLINE ")[0]
                is_memory = text.startswith("Out of Memory Error")
                answer = _error("OutOfMemoryException" if is_memory else "InvalidInputException", text)
            except MemoryError:
                is_fatal = True
                answer = _error("OutOfMemoryException", "the query needs more memory than it may have")
            if answer is not None:
                frames.send_message(self._server, answer | ({"ends": True} if is_fatal else {}))
            if is_fatal:
                return

    def _warm_up(self) -> None:
        """Import the modules that a query imports, while files can still be read."""
        for name in media_types.FORMATS:
            request = {"sql": "SELECT 1 AS a, INTERVAL 1 DAY AS b, uuid() AS c", "format": name}
            for _ in self._pieces(self._duckdb.cursor(), str(request["sql"]), request | {"summary": {}}, {}):
                pass
        self._prepare({"sql": "SELECT 1"})

    def _prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        statement = sql.read_statement(self._duckdb, request["sql"])
        tables: list[dict[str, str | None]] = [
            {
                "key": table.key,
                "catalog": table.catalog,
                "schema": table.schema,
                "name": table.name,
                "at": table.at,
                "at_text": table.at_text,
            }
            for table in statement.tables
        ]
        return {
            "statement": {
                "is_explain": statement.is_explain,
                "parameters": statement.parameters,
                "tables": tables,
            }
        }

    def _run(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """Attach the warehouses of the query, run it, send the result."""
        overlays = [(one, frames.receive_data(self._server)) for one in request["overlays"]]
        connection = self._duckdb.cursor()
        try:
            self._attachments.attach(request["attachments"])
            for number, (one, data) in enumerate(overlays):
                _create_view(connection, f"overlay_{number}", one, data)
            tables = {key: sql.ResolvedTable(*table) for key, table in request["tables"].items()}
            text = sql.resolved_sql(connection, request["sql"], tables)
            if request["explain"]:
                return {"done": profile.measured(connection, text, request["parameters"])}
            try:
                return self._send_result(connection, text, request)
            except (duckdb.InterruptException, pa.ArrowException, OSError) as error:
                raise own_error(connection, text, request["parameters"], error) from error
        except BaseException:
            self._attachments.forget()
            raise
        finally:
            connection.close()  # it has the overlays
            for one, _ in overlays:
                self._duckdb.execute(f"DROP VIEW IF EXISTS {sql.full_name(one['view'])}")

    def _send_result(
        self, connection: duckdb.DuckDBPyConnection, text: str, request: dict[str, Any]
    ) -> dict[str, Any] | None:
        """Send pieces of a suitable size, then the summary, then the last piece."""
        done: dict[str, Any] = {}
        waiting, sent_s = bytearray(), time.monotonic()
        limit = request["result_bytes_max"]
        size = 0
        for piece in self._pieces(connection, text, request, done):
            size += len(piece)
            if size > limit:
                return _error(
                    "ResultTooLarge", f"the result has more than {limit} bytes: select fewer rows or columns"
                )
            waiting += piece
            if len(waiting) >= PIECE_BYTES or (waiting and time.monotonic() - sent_s > PIECE_S):
                frames.send(self._server, frames.DATA, bytes(waiting))
                waiting.clear()
                sent_s = time.monotonic()
        frames.send_message(self._server, {"done": done | {"bytes": size}})
        frames.send(self._server, frames.DATA, bytes(waiting))
        return None

    def _pieces(
        self,
        connection: duckdb.DuckDBPyConnection,
        text: str,
        request: dict[str, Any],
        done: dict[str, Any],
    ) -> Iterator[bytes]:
        """Yield the body in pieces. Fills `done`."""
        started_s = time.monotonic()
        parameters = request.get("parameters") or None
        result = connection.execute(text, parameters)
        names = [str(column[0]) for column in result.description or ()]
        types = [str(column[1]) for column in result.description or ()]
        if any(map(_is_foreign_to_arrow, types)):
            result = connection.execute(_with_text(text, names, types), parameters)
        reader = result.to_arrow_reader(BATCH_ROWS)
        out = formats.writer(request["format"], reader.schema, types)
        rows = 0
        yield out.head()
        for batch in reader:
            rows += batch.num_rows
            yield out.rows(batch)
        done |= {"rows": rows, "elapsed_ms": round((time.monotonic() - started_s) * 1000, 3)}
        elapsed_ms = round(done["elapsed_ms"] + request.get("prepared_ms", 0), 3)
        yield out.tail({"rowCount": rows} | request["summary"] | {"elapsed_ms": elapsed_ms})


def _create_view(
    connection: duckdb.DuckDBPyConnection, overlay: str, described: dict[str, Any], data: bytes
) -> None:
    """Create a view of a table with an overlay, which the query reads instead of the table."""
    connection.register(overlay, pa.ipc.open_stream(data).read_all())
    table, view = sql.full_name(described["table"]), sql.full_name(described["view"])
    columns = connection.execute(f"DESCRIBE FROM {table}").fetchall()
    shape = OverlayShape.of(described["shape"])
    select = overlay_sql(table, [(str(row[0]), str(row[1])) for row in columns], overlay, shape)
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {sql.full_name(described['view'][:2])}")
    connection.execute(f"CREATE VIEW {view} AS {select}")


def own_error(
    connection: duckdb.DuckDBPyConnection, text: str, parameters: Any, error: Exception
) -> Exception:
    """Return the error of the query itself.

    When a thread of DuckDB fails, it interrupts the others. A streamed result sometimes reports that
    interrupt instead of its cause, also on a second call. Nothing else interrupts a query: the server kills
    the process. So the query runs once more, without its rows, and fails with its own error.
    """
    if not str(error).startswith(INTERRUPTED):
        return error
    try:
        profile.run_without_rows(connection, text, parameters)
    except duckdb.Error as found:
        return found
    return duckdb.OperationalError("a part of the query failed, but not on a second run: send it again")


def _is_foreign_to_arrow(type_: str) -> bool:
    """Return whether Arrow has no type that keeps its values; such a column becomes text."""
    return _FOREIGN_TO_ARROW.search(type_) is not None


def _with_text(text: str, names: list[str], types: list[str]) -> str:
    """Return the query with those columns cast to text for which Arrow has no type."""
    inner = [f"c{index}" for index in range(len(names))]
    shown = [
        f"{f'CAST({column} AS VARCHAR)' if _is_foreign_to_arrow(type_) else column} AS {sql.quoted(name)}"
        for column, name, type_ in zip(inner, names, types, strict=True)
    ]
    query = text.strip().rstrip(";")
    return f"FROM ({query}\n) AS q({', '.join(inner)}) SELECT {', '.join(shown)}"


def confine(connection: duckdb.DuckDBPyConnection, configuration: dict[str, Any], status: IO[str]) -> None:
    """Give up the last rights that queries do not need, and let DuckDB start its threads."""
    sandbox.limit_resources(status, configuration["memory_bytes_max"] + MEMORY_EXTRA_BYTES)
    if configuration["confine"]:
        # All Python modules have been imported, so Python's own files are not among the paths.
        paths = [Path(path) for path in configuration["read_paths"]]
        sandbox.confine_further(paths, configuration["tcp_ports"])
    connection.execute(f"SET threads={configuration['threads']}")
    connection.execute("SET lock_configuration=true")


def open_duckdb(configuration: dict[str, Any]) -> duckdb.DuckDBPyConnection:
    """Open DuckDB with its extensions, and without files or network beyond the warehouses.

    It has no threads yet: threads that exist when the kernel restricts this one stay unrestricted.
    """
    memory = f"{configuration['memory_bytes_max'] // 2**20}MiB"
    connection = duckdb.connect(
        config={"extension_directory": "/nonexistent", "memory_limit": memory, "threads": 1}
    )
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
    }
    for key, value in settings.items():
        connection.execute(f"SET {key}={value}")
    if configuration.get("s3"):
        connection.execute(_secret(configuration["s3"]))
    connection.execute("FROM duckdb_secrets()")  # opens the secret storage while files can still be read
    directories = ", ".join(sql.literal(path) for path in configuration["data_paths"])
    connection.execute(f"SET allowed_directories=[{directories}]")
    connection.execute("SET enable_external_access=false")
    return connection


def _secret(s3: dict[str, Any]) -> str:
    options = ", ".join(f"{key} {sql.literal(str(value))}" for key, value in s3.items())
    return f"CREATE SECRET lake (TYPE s3, {options})"


def _error(type_: str, message: str) -> dict[str, Any]:
    return {"error": {"type": type_, "message": message}}
