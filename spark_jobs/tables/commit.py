"""Prepare the commits of a batch with Iceberg's own library, in the driver's JVM.

Tasks have written and described the files. This module adds them to each table in one snapshot. It writes
manifests, reads no data file and sends nothing: the publish request carries the requirements and updates.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from pyspark import SparkContext

BATCH_ID = "calve.batch-id"  # in the summary of every snapshot
# A document has some 1,500 snapshots, and every commit writes all of it. So a summary has only what is used:
# Iceberg needs the operation, and the totals for those of the next snapshot.
_IN_SUMMARY = frozenset({BATCH_ID, "operation", "added-records", "deleted-records"})
_NO_EQUALITY_DELETES = ("total-equality-deletes", "0")
# Each snapshot has one manifest of data files and one of deletes, and further ones only for what does not
# fit into them. Otherwise every kept moment would keep the small manifests of the batches before it. A
# manifest is written anew with each batch until it has the target size, so that is small.
_MANIFESTS = {
    "commit.manifest.min-count-to-merge": "2",
    "commit.manifest.target-size-bytes": str(256 * 2**10),
}
# Small classes that Iceberg's library lacks. Spark's driver has a Java compiler, the one that compiles its
# generated code.
_JAVA_CLASSES = ("DocumentOperations", "LocalFileIO")


@dataclass(frozen=True, slots=True)
class Prepared:
    """A commit in the JSON of the REST specification. `files` returns the metadata files it wrote. `unused`
    are manifests that were merged into others, and that no snapshot will ever have.
    """

    requirements: list[Any]
    updates: list[Any]
    files: Callable[[], list[str]]
    unused: list[str] = field(default_factory=list)


class Committer:
    """Prepares commits to tables that are given by their metadata documents. Thread-safe."""

    def __init__(self, context: SparkContext) -> None:
        spark: Any = context
        self._jvm = spark._jvm  # noqa: SLF001 - there is no other way to it
        self._gateway = spark._gateway  # noqa: SLF001
        self._hadoop = spark._jsc.hadoopConfiguration()  # noqa: SLF001
        self._iceberg: Any = self._jvm.org.apache.iceberg
        self._operations, self._local_file_io = map(self._compiled, _JAVA_CLASSES)

    def _compiled(self, name: str) -> Any:
        """Return the constructor of a class whose source is in this folder."""
        compiler = self._jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(self._jvm.Thread.currentThread().getContextClassLoader())
        compiler.cook(Path(__file__).with_name(f"{name}.java").read_text())
        (constructor,) = compiler.getClassLoader().loadClass(name).getConstructors()
        return constructor

    def file_io(self, properties: Mapping[str, str]) -> Any:
        """Iceberg's FileIO, chosen by the scheme of each location."""
        io = self._local_file_io.newInstance(self._gateway.new_array(self._jvm.java.lang.Object, 0))
        io.setConf(self._hadoop)
        io.initialize(dict(properties))
        return io

    def prepare(
        self,
        document: Mapping[str, Any],
        io: Any,
        described: Sequence[str],
        removed: Sequence[str] = (),
        *,
        truncated: bool = False,
        summary: Mapping[str, str] | None = None,
    ) -> Prepared | None:
        """Prepare a snapshot that adds files, given in the JSON of the REST specification, and removes
        deletion vectors that new ones replace.

        `truncated` removes all existing rows. Returns None if there is nothing to commit.
        """
        if not described and not truncated:
            return None
        merging = {**document, "properties": {**_MANIFESTS, **document.get("properties", {})}}
        transaction = self._iceberg.Transactions.newTransaction("", self._table(merging, io))
        update = self._update(transaction, described, removed, truncated=truncated)
        for name, value in (summary or {}).items():
            update.set(name, value)
        if not str(document["location"]).startswith("s3"):
            # Iceberg polls its thread pool every 10 ms; the few small files of a commit take less time than
            # that.
            executors = self._iceberg.relocated.com.google.common.util.concurrent.MoreExecutors
            update = update.scanManifestsWith(executors.newDirectExecutorService())
        update.commit()
        # The transaction would delete them in its own commit, which is the publish here.
        unused = transaction.getClass().getDeclaredField("deletedFiles")
        unused.setAccessible(True)
        found = [str(path) for path in unused.get(transaction)]
        return replace(self._prepared(transaction, io), unused=found)

    def replace(
        self,
        document: Mapping[str, Any],
        io: Any,
        old: Sequence[Any],
        new: Sequence[Any],
        vectors: Sequence[Any] = (),
        *,
        properties: Mapping[str, str],
    ) -> Prepared:
        """A snapshot in which new data files, as objects of Iceberg's library, replace old ones and their
        deletion vectors. The rows are the same. The table gets the properties in the same commit.
        """
        transaction = self._iceberg.Transactions.newTransaction("", self._table(document, io))
        if properties:
            setting = transaction.updateProperties()
            for name, value in properties.items():
                setting = setting.set(name, value)
            setting.commit()
        snapshot = transaction.startMetadata().currentSnapshot()
        update = transaction.newRewrite().validateFromSnapshot(snapshot.snapshotId())
        # Deletes up to this snapshot are applied already; later ones also hold for the new files.
        update = update.dataSequenceNumber(snapshot.sequenceNumber())
        for file in (*old, *vectors):
            update = update.deleteFile(file)
        for file in new:
            update = update.addFile(file)
        update.commit()
        return self._prepared(transaction, io)

    def table(self, document: Mapping[str, Any], io: Any) -> Any:
        """A table to read and write files of. It cannot be committed to."""
        return self._iceberg.BaseTable(self._table(document, io), str(document["location"]))

    def _table(self, document: Mapping[str, Any], io: Any) -> Any:
        metadata = self._iceberg.TableMetadataParser.fromJson(json.dumps(document))
        folder = (
            document.get("properties", {}).get("write.metadata.path") or f"{document['location']}/metadata"
        )
        given = self._gateway.new_array(self._jvm.java.lang.Object, 3)
        given[0], given[1], given[2] = metadata, io, folder.rstrip("/")
        return self._operations.newInstance(given)

    def _update(
        self, transaction: Any, described: Sequence[str], removed: Sequence[str], *, truncated: bool
    ) -> Any:
        parser, mapper = self._iceberg.ContentFileParser, self._iceberg.util.JsonUtil.mapper()
        specs = transaction.table().specs()
        data: list[Any] = []
        deletes: list[Any] = []
        for text in described:
            file = parser.fromJson(mapper.readTree(text), specs)
            (data if json.loads(text)["content"] == "data" else deletes).append(file)
        if truncated:
            update = transaction.newOverwrite()
            update = update.overwriteByRowFilter(self._iceberg.expressions.Expressions.alwaysTrue())
            add = update.addFile
        elif deletes:
            update = transaction.newRowDelta()
            snapshot = transaction.startMetadata().currentSnapshot()
            if snapshot is not None:  # without it, every vector that the table ever got counts as a conflict
                update = update.validateFromSnapshot(snapshot.snapshotId())
            for text in removed:
                update.removeDeletes(parser.fromJson(mapper.readTree(text), specs))
            add = update.addRows
        else:
            update = transaction.newAppend()
            add = update.appendFile
        for file in data:
            add(file)
        for file in deletes:
            update.addDeletes(file)
        return update

    def _prepared(self, transaction: Any, io: Any) -> Prepared:
        name = self._iceberg.catalog.TableIdentifier.parse("t")
        commit = self._iceberg.catalog.TableCommit.create(
            name, transaction.startMetadata(), transaction.currentMetadata()
        )
        requests = self._iceberg.rest.requests
        request = requests.UpdateTableRequest(commit.requirements(), commit.updates())
        given = json.loads(requests.UpdateTableRequestParser.toJson(request))
        for update in given["updates"]:
            if update["action"] == "add-snapshot":
                update["snapshot"]["summary"] = short_summary(update["snapshot"]["summary"])
        snapshot = transaction.currentMetadata().currentSnapshot()

        def files() -> list[str]:
            manifests = [m for m in snapshot.allManifests(io) if m.snapshotId() == snapshot.snapshotId()]
            return [*(str(manifest.path()) for manifest in manifests), str(snapshot.manifestListLocation())]

        return Prepared(given["requirements"], given["updates"], files)


def short_summary(summary: Mapping[str, str]) -> dict[str, str]:
    """The summary of a snapshot without what nothing uses, such as the version of the library."""
    return {
        name: value
        for name, value in summary.items()
        if name in _IN_SUMMARY or (name.startswith("total-") and (name, value) != _NO_EQUALITY_DELETES)
    }


@lru_cache(maxsize=1)
def committer_of(context: SparkContext) -> Committer:
    """Return the committer of this JVM, which all slots of a worker share."""
    return Committer(context)


def quoted(*names: str) -> str:
    """Return a name of several parts in Spark's quotes: `a`.`b`.`c`"""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)
