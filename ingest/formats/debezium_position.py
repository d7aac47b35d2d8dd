"""The log position of a Debezium event, and its identity.

It is computed from Debezium's `source` block, of any connector, by the fields that it has; numbers may be
text (CloudEvents). A position sorts in the order of commits, which for PostgreSQL is not the order of LSNs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from ingest.change import Gtid, position_of, whole_number

Source = Mapping[str, Any]
NOT_DELETE = 2**62
_MARIADB_GTID = re.compile(r"(\d+)-(\d+)-(\d+)")


@dataclass(frozen=True, slots=True)
class LogPosition:
    """`position` sorts; `mark`, if any, is a log position that no other event with the same table and
    operation has.

    With an `order`, several rows may share the mark, and the order distinguishes them. But if the connector
    is killed inside a transaction, the rest of it is numbered from 1 again.
    """

    position: str
    mark: str | None
    order: int | None = None


def log_position(
    source: Source, total_order: int | None, ts: Source, *, deletes: bool = False
) -> LogPosition:
    """Return the position of an event. `ts` has the time if `source` has none."""
    if source.get("lsn") is not None:
        return _postgres(source, total_order, deletes=deletes)
    if source.get("pos") is not None:
        return _mysql(source)
    if source.get("commit_lsn") is not None or source.get("change_lsn") is not None:
        return _sql_server(source)
    if source.get("scn") is not None or source.get("commit_scn") is not None:
        return _oracle(source)
    if source.get("ord") is not None:
        return _mongodb(source)
    if _text(source.get("connector")) in _LOGGED:
        return _NOWHERE  # a time would sort wrongly among log positions
    moment = _moment_ns(source) or _moment_ns(ts)
    return LogPosition(position_of(moment), None) if moment else _NOWHERE


def origin_of(source: Source) -> str:
    """Return what identifies the log of MySQL or MariaDB that the event is in: the id of the server.

    With GTIDs, `server_id` is the server that made the change first, which may not be the one that is read.
    The name of the file then tells apart the two logs that one request may contain parts of.
    """
    if source.get("pos") is None:
        return ""
    gtid = gtid_of(source)
    if gtid is not None:
        return f"{gtid.series}@{_text(source.get('file'))}"
    server = whole_number(source.get("server_id"))
    return str(server) if server else ""


def gtid_of(source: Source) -> Gtid | None:
    """Return the GTID of an event of MySQL (`uuid:number`) or MariaDB (`domain-server-number`)."""
    text = _text(source.get("gtid"))
    if source.get("pos") is None or not text:
        return None
    found = _MARIADB_GTID.fullmatch(text)
    if found is not None:
        domain, server, number = found.groups()
        return Gtid(f"{domain}-{server}", int(number), domain)
    series, _, last = text.rpartition(":")
    return Gtid(series, int(last)) if series and last.isdecimal() else None


def transaction_of(block: object) -> tuple[str | None, int | None]:
    """Return the id of the transaction and the number of the event in it, from a `transaction` block."""
    if not isinstance(block, Mapping):
        return None, None
    return transaction_id(block.get("id")), whole_number(block.get("total_order"))


def transaction_id(text: object) -> str | None:
    """Return the id without PostgreSQL's second half (`txId:lsn`), which differs from event to event."""
    if not isinstance(text, str) or not text:
        return None
    head, _, tail = text.partition(":")
    return head if head.isdigit() and tail.isdigit() else text


def _postgres(source: Source, total_order: int | None, *, deletes: bool) -> LogPosition:
    lsn = whole_number(source["lsn"])
    if lsn is None:
        return _NOWHERE
    committed = _last_commit(source.get("sequence"))
    if committed is None:
        committed = lsn
    # A changed key is a delete and an insert at one LSN; if Debezium is killed between the two, the insert
    # comes with a smaller number.
    order = 0 if total_order is None else total_order if deletes else total_order + NOT_DELETE
    position = f"{committed:016x}/{lsn:016x}/{order:016x}"  # the same as position_of, which is slower
    # Rows of one COPY share the LSN, so the LSN alone is not an identity.
    return LogPosition(position, None if total_order is None else str(lsn), total_order)


def _last_commit(sequence: object) -> int | None:
    """Return the first of `["lastCommitLsn", "lsn"]`, which is text."""
    if isinstance(sequence, str):
        try:
            sequence = orjson.loads(sequence)
        except orjson.JSONDecodeError:
            return None
    return whole_number(sequence[0]) if isinstance(sequence, list) and sequence else None


def _mysql(source: Source) -> LogPosition:
    file, pos, row = source.get("file"), whole_number(source["pos"]), whole_number(source.get("row")) or 0
    if not isinstance(file, str) or pos is None:
        return _NOWHERE
    number = whole_number(file.rpartition(".")[2])  # the number may get more digits one day
    position = position_of(file if number is None else number, pos, row)
    gtid = _text(source.get("gtid"))
    if gtid:
        # Another server may have another change of this transaction here: identities contain the row too.
        return LogPosition(position, f"{gtid}/{file}/{pos}", row)
    return LogPosition(position, f"{source.get('server_id') or ''}/{file}/{pos}/{row}")


def _sql_server(source: Source) -> LogPosition:
    commit, change = (_text(source.get(name)) for name in ("commit_lsn", "change_lsn"))
    serial = whole_number(source.get("event_serial_no")) or 0
    mark = f"{commit}/{change}/{serial}" if change else None
    return LogPosition(position_of(commit, change, serial), mark)


def _oracle(source: Source) -> LogPosition:
    commit, own = (_first_number(source.get(name)) for name in ("commit_scn", "scn"))
    scn = own if commit is None else commit
    if scn is None:
        return _NOWHERE
    record, serial = _text(source.get("rs_id")).strip(), whole_number(source.get("ssn")) or 0
    return LogPosition(position_of(scn, record, serial), f"{scn}/{own}/{record}/{serial}" if record else None)


def _mongodb(source: Source) -> LogPosition:
    seconds, order = whole_number(source.get("ts_ms")), whole_number(source["ord"])
    if seconds is None or order is None:
        return _NOWHERE
    return LogPosition(position_of(seconds, order), None)


def _moment_ns(fields: Source) -> int:
    for name, nanoseconds in (("ts_ns", 1), ("ts_us", 1_000), ("ts_ms", 1_000_000)):
        moment = whole_number(fields.get(name))
        if moment is not None and moment > 0:
            return moment * nanoseconds
    return 0


def _first_number(value: object) -> int | None:
    """Return an SCN; with several threads it is a list in a text, of which the first is used."""
    if isinstance(value, str):
        value = value.split(",")[0].partition(":")[0]
    return whole_number(value)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


_NOWHERE = LogPosition("", None)
_LOGGED = frozenset({"postgresql", "mysql", "mariadb", "sqlserver", "db2", "informix", "oracle", "mongodb"})
