"""One table of a lake: its rows at any moment, its history, its schema and its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, Literal

from calve.client.calls import Connection
from calve.client.names import dotted
from calve.client.table_operations import Document, Key, TableOperations
from calve.client.times import Moment


class Table:
    """Made by `Lake.table`. Each method is one request; nothing is cached."""

    def __init__(self, connection: Connection, operations: TableOperations) -> None:
        self._connection = connection
        self._operations = operations

    def __repr__(self) -> str:
        return f"<calve table {self.name}>"

    @property
    def name(self) -> str:
        """The namespace and the name, with dots."""
        return dotted(self._operations.levels)

    def metadata(self, *, snapshots: Literal["all", "refs"] = "all") -> Document:
        """The table's metadata as the Iceberg specification defines it.

        With `snapshots="refs"` it has only the snapshots that branches and tags point to.
        """
        return self._connection.run(self._operations.metadata(None if snapshots == "all" else snapshots))

    def rows(
        self,
        *,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        as_of: Moment | None = None,
        dates: tuple[date | str | None, date | str | None] | None = None,
        date_column: str | None = None,
        limit: int | None = None,
    ) -> list[Document]:
        """Rows without SQL, in no certain order: at most 10,000.

        `where` is a predicate, `dates` the first and the last day of a range, `date_column` their column.
        Without `limit`, TooLarge is raised if there are more rows.

        >>> lake.table("shop.orders").rows(where="amount > 100", as_of="yesterday")
        """
        return self._connection.run(self._operations.rows(where, columns, as_of, dates, date_column, limit))

    def get(self, key: Key, *, as_of: Moment | None = None) -> Document | None:
        """The row with this key (a value, or a dict if the key has several columns); None if none has it."""
        return self._connection.run(self._operations.get(key, as_of))

    def snapshots(self, *, as_of: Moment | None = None) -> list[Document]:
        """The snapshots, the newest first."""
        return self._connection.run(self._operations.snapshots(as_of))

    def snapshot_as_of(self, moment: Moment) -> Document | None:
        """The snapshot that was current at a moment; None if the table had none yet."""
        return self._connection.run(self._operations.snapshot_as_of(moment))

    def history(self, key: Key) -> list[Document]:
        """Every version of one row: when, by which operation and transaction, before and after."""
        return self._connection.run(self._operations.history(key))

    def changes(self, from_: Moment | None = None, to: Moment | None = None) -> Document:
        """The changes that became visible between two moments, in order.

        The result has `changes`, and `to_number`: pass it as `from_` to go on from there.
        """
        return self._connection.run(self._operations.changes(from_, to))

    def diff(self, from_: Moment, to: Moment | None = None, *, limit: int | None = None) -> Document:
        """The rows that were added, removed and changed between two moments; `to` is now if left out.

        `limit` bounds each list of rows; the counts are whole.
        """
        return self._connection.run(self._operations.diff(from_, to, limit))

    def rollback_to(
        self, moment: Moment | None = None, *, snapshot_id: int | None = None, dry_run: bool = False
    ) -> Document:
        """Set the table back to a moment or a snapshot. This is a new commit: the history stays.

        With `dry_run` nothing is changed; the result says what would be undone.
        """
        return self._connection.run(self._operations.rollback(moment, snapshot_id, dry_run))

    def pause(self, reason: str | None = None) -> Document:
        """Acknowledge changes of the table and land none of them, until it is resumed."""
        return self._connection.run(self._operations.pause(reason))

    def resume(self) -> Document:
        """Land what has waited, and what comes."""
        return self._connection.run(self._operations.resume())

    def skip(self, up_to: int | None = None) -> Document:
        """Make dead letters of the changes that wait first, or of all up to a journal id. The table must be
        paused.
        """
        return self._connection.run(self._operations.skip(up_to))

    def begin_resync(self) -> Document:
        """Begin a resync: then send all rows of the table again. Its changes wait until the end."""
        return self._connection.run(self._operations.begin_resync())

    def end_resync(self) -> Document:
        """All rows have been sent: they replace those of the table, in one publish."""
        return self._connection.run(self._operations.end_resync())

    def abort_resync(self) -> Document:
        """Give the resync up: what has waited lands as ordinary changes, and nothing is deleted."""
        return self._connection.run(self._operations.abort_resync())

    def rebuild(self, reason: str | None = None) -> Document:
        """Rebuild the mirror from its changes table. `ingest_settings()` shows when it is done."""
        return self._connection.run(self._operations.rebuild(reason))

    def ingest_settings(self) -> Document:
        """How changes of the table are treated; in `state` its key, doubts and rebuilds."""
        return self._connection.run(self._operations.ingest_settings())

    def set_ingest_settings(self, **settings: Any) -> Document:
        """Set how changes of the table are treated: `mirror_changed`, `truncate`, `deletes`, `key` and so on.
        The settings that are not named stay.
        """
        changed = {name.replace("_", "-"): value for name, value in settings.items()}
        return self._connection.run(self._operations.set_ingest_settings(changed))

    def maintenance(self) -> Document:
        """The policy and health of the table, what runs next and why, and what ran last."""
        return self._connection.run(self._operations.maintenance())

    def verification(self) -> Document:
        """Whether the mirror is right: up to which position that is known, and which rows differ."""
        return self._connection.run(self._operations.verification())

    def verify(self) -> Document:
        """Have a worker compare the mirror with its changes. `verification()` shows what it finds."""
        return self._connection.run(self._operations.verify())

    def post_checksums(
        self, source: str, position: int | str, columns: Sequence[str], count: int, **checksums: Any
    ) -> Document:
        """Have a worker compare the table with checksums of its source at a position: `hash`, the sum over
        all rows, or `buckets`, the rows and the sum of each bucket.
        """
        given = {"source": source, "position": position, "columns": list(columns), "count": count}
        return self._connection.run(self._operations.post_checksums(given | checksums))

    def compact(self, *, dry_run: bool = False) -> Document:
        """Have a worker join small files. `maintenance()` shows when it is done."""
        return self._connection.run(self._operations.maintain("compact", dry_run))

    def rewrite_manifests(self, *, dry_run: bool = False) -> Document:
        """Have a worker rewrite the manifests into fewer."""
        return self._connection.run(self._operations.maintain("rewrite-manifests", dry_run))

    def archive(self, *, dry_run: bool = False) -> Document:
        """Have a worker move old changes of a changes table to its archive."""
        return self._connection.run(self._operations.maintain("archive", dry_run))

    def expire(self, *, dry_run: bool = False) -> Document:
        """Remove the snapshots that no kept moment, branch, tag or open transaction needs."""
        return self._connection.run(self._operations.maintain("expire", dry_run))

    def remove_orphans(self, *, dry_run: bool = True) -> Document:
        """List old files that nothing refers to; with `dry_run=False` delete them."""
        return self._connection.run(self._operations.maintain("remove-orphans", dry_run))

    def tags(self) -> list[Document]:
        """The tags: names that keep a snapshot."""
        return self._connection.run(self._operations.refs("tags"))

    def create_tag(
        self, name: str, *, snapshot_id: int | None = None, as_of: Moment | None = None
    ) -> Document:
        """Name the current snapshot, another one, or the one of a moment."""
        return self._connection.run(self._operations.create_ref("tags", name, snapshot_id, as_of))

    def drop_tag(self, name: str) -> None:
        """Drop a tag."""
        self._connection.run(self._operations.drop_ref("tags", name))

    def branches(self) -> list[Document]:
        """The branches, `main` among them."""
        return self._connection.run(self._operations.refs("branches"))

    def create_branch(
        self, name: str, *, snapshot_id: int | None = None, as_of: Moment | None = None
    ) -> Document:
        """Begin a branch at the current snapshot, at another one, or at the one of a moment."""
        return self._connection.run(self._operations.create_ref("branches", name, snapshot_id, as_of))

    def drop_branch(self, name: str) -> None:
        """Drop a branch."""
        self._connection.run(self._operations.drop_ref("branches", name))

    def schema(self, *, as_of: Moment | None = None) -> Document:
        """The schema, and the versions that it had."""
        return self._connection.run(self._operations.schema(as_of))

    def check_schema(self, columns: Sequence[Document]) -> Document:
        """Whether rows with these columns fit into the table, with the reason for each column.

        >>> lake.table("shop.orders").check_schema([{"name": "id", "type": "long"}])
        """
        return self._connection.run(self._operations.check_schema(columns))

    def evolve(
        self,
        *,
        add: Sequence[Document] | None = None,
        drop: Sequence[str] | None = None,
        rename: Mapping[str, str] | None = None,
        widen: Mapping[str, str] | None = None,
        optional: Sequence[str] | None = None,
        comment: Mapping[str, str] | None = None,
        reorder: Sequence[Document] | None = None,
        dry_run: bool = False,
    ) -> Document:
        """Change the schema, all of it or nothing. With `dry_run`, only say what would be done.

        >>> lake.table("shop.orders").evolve(add=[{"name": "note", "type": "string"}])
        """
        changes: Document = {
            "add": add,
            "drop": drop,
            "rename": rename,
            "widen": widen,
            "optional": optional,
            "comment": comment,
            "reorder": reorder,
            "dry_run": dry_run,
        }
        return self._connection.run(self._operations.evolve(changes))

    def partitions(self, *, as_of: Moment | None = None) -> Document:
        """The partition spec, and each partition with its rows and bytes."""
        return self._connection.run(self._operations.partitions(as_of))

    def evolve_partitions(
        self,
        *,
        add: Sequence[str] | None = None,
        drop: Sequence[str] | None = None,
        rename: Mapping[str, str] | None = None,
    ) -> Document:
        """Change how new files are partitioned: add `days(at)` or `bucket(16, id)`, drop, rename."""
        changes: Document = {"add": add, "drop": drop, "rename": rename}
        return self._connection.run(self._operations.evolve_partitions(changes))

    def files(self, filter: str | None = None, *, as_of: Moment | None = None) -> Document:  # noqa: A002
        """The data files, or those that can have rows of a predicate."""
        return self._connection.run(self._operations.files(filter, as_of))

    def append_files(self, *locations: str) -> Document:
        """Add Parquet files that are in the warehouse's storage; all of them or none."""
        return self._connection.run(self._operations.append_files(locations))

    def overwrite_files(self, *locations: str, where: str | None = None) -> Document:
        """Replace all rows, or those of a predicate, by the rows of Parquet files."""
        return self._connection.run(self._operations.overwrite_files(locations, where))

    def export(
        self,
        location: str,
        *,
        as_of: Moment | None = None,
        where: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> Document:
        """Write the rows of one moment as Parquet files below a location of the warehouse's storage."""
        return self._connection.run(self._operations.export(location, as_of, where, columns))
