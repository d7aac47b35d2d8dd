"""The commits of a batch, by Iceberg's own library in the driver's JVM.

Tasks have written and described the files; here each table gets one snapshot with them. Manifests are
written, no data file is read, and nothing is sent: the requirements and updates go with the publish.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pyspark import SparkContext

BATCH_ID = "calve.batch-id"  # in the summary of every snapshot
# Iceberg has no public TableOperations for a table that is only known by its document and can be written to.
# Spark has the compiler of its generated code in the driver.
_OPERATIONS = """
public class DocumentOperations extends org.apache.iceberg.StaticTableOperations {
  private final String folder;

  public DocumentOperations(
      org.apache.iceberg.TableMetadata metadata, org.apache.iceberg.io.FileIO io, String folder) {
    super(metadata, io,
        org.apache.iceberg.LocationProviders.locationsFor(metadata.location(), metadata.properties()));
    this.folder = folder;
  }

  public String metadataFileLocation(String name) {
    return folder + "/" + name;
  }
}
"""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A commit in the JSON of the REST specification. `files` reads which metadata files were written."""

    requirements: list[Any]
    updates: list[Any]
    files: Callable[[], list[str]]


class Committer:
    """Prepares commits to tables that are given by their documents. Safe to use from several threads."""

    def __init__(self, context: SparkContext) -> None:
        spark: Any = context
        self._jvm = spark._jvm  # noqa: SLF001 - there is no other way to it
        self._gateway = spark._gateway  # noqa: SLF001
        self._hadoop = spark._jsc.hadoopConfiguration()  # noqa: SLF001
        self._iceberg: Any = self._jvm.org.apache.iceberg
        compiler = self._jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(self._jvm.Thread.currentThread().getContextClassLoader())
        compiler.cook(_OPERATIONS)
        (self._operations,) = compiler.getClassLoader().loadClass("DocumentOperations").getConstructors()

    def file_io(self, properties: Mapping[str, str]) -> Any:
        """Iceberg's FileIO; the scheme of each location decides which."""
        name = "org.apache.iceberg.io.ResolvingFileIO"
        return self._iceberg.CatalogUtil.loadFileIO(name, dict(properties), self._hadoop)

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
        """A snapshot that adds files, given in the JSON of the REST specification, and removes deletion
        vectors that new ones replace. `truncated` removes all rows that are there. None if there is nothing
        to do.
        """
        if not described and not truncated:
            return None
        transaction = self._iceberg.Transactions.newTransaction("", self._table(document, io))
        update = self._update(transaction, described, removed, truncated=truncated)
        for name, value in (summary or {}).items():
            update.set(name, value)
        if not str(document["location"]).startswith("s3"):
            # Iceberg looks every 10 ms whether its pool is done; the few small files of a commit take less.
            executors = self._iceberg.relocated.com.google.common.util.concurrent.MoreExecutors
            update = update.scanManifestsWith(executors.newDirectExecutorService())
        update.commit()
        return self._prepared(transaction, io)

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
            if snapshot is not None:  # else every vector that the table ever got counts as a conflict
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
        snapshot = transaction.currentMetadata().currentSnapshot()

        def files() -> list[str]:
            manifests = [m for m in snapshot.allManifests(io) if m.snapshotId() == snapshot.snapshotId()]
            return [*(str(manifest.path()) for manifest in manifests), str(snapshot.manifestListLocation())]

        return Prepared(given["requirements"], given["updates"], files)


@lru_cache(maxsize=1)
def committer_of(context: SparkContext) -> Committer:
    """One for all slots of a worker."""
    return Committer(context)


def quoted(*names: str) -> str:
    """A name of several parts as Spark reads it: `a`.`b`.`c`"""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)
