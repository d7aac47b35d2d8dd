"""Staged Parquet files: read by the driver, or left to the executors where they are large.

Spark's Parquet reader goes through Hadoop's file systems, and there is none for s3:// among our jars. So
the driver reads staged files with Arrow, from file:// and s3:// alike, and Spark gets their rows as part of
the plan: no scan, no job, no second look at the file. Files that are more than `ARROW_BYTES_MAX` as Arrow are
left where they are and read by the executors, if they need no completing; from s3:// through a copy on the
driver's disk, where the executors share it.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from spark_jobs.job import BadJob
from spark_jobs.session import S3Options

ARROW_BYTES_MAX = 32 * 2**20  # beyond it Spark would not take the rows into the plan anyway
S3_TIMEOUT_S = 20.0
_RETRIES = 3


class Store:
    """Where staged files are. `shares_disk` says whether executors see this machine's files."""

    def __init__(
        self, s3: S3Options | None = None, *, shares_disk: bool = True, bytes_max: int = ARROW_BYTES_MAX
    ) -> None:
        self._s3 = s3
        self._shares_disk = shares_disk
        self._bytes_max = bytes_max
        self._s3_files: Any = None

    def load(self, files: Sequence[str], *, whole: bool) -> pa.Table | None:
        """The rows; None if they are many and it must not be all of them at once."""
        if not files:
            raise BadJob("a table has changes but no files")
        found = []
        left = None if whole else self._bytes_max
        for file in files:
            with self._opened(file) as source:
                if left is not None and source.size() > left:
                    return None
                parquet = pq.ParquetFile(pa.BufferReader(source.read_buffer()))
            if left is not None:
                left -= _bytes(parquet.metadata)
                if left < 0:
                    return None
            found.append(parquet.read())
        table = pa.concat_tables(found) if len(found) > 1 else found[0]
        return table.replace_schema_metadata(None)

    @contextlib.contextmanager
    def large(self, files: Sequence[str]) -> Iterator[Large | None]:
        """The same for executors, until the end of the block; None if they have no way to the files."""
        if not self._shares_disk and any(_scheme(file) == "s3" for file in files):
            yield None
            return
        with contextlib.ExitStack() as copies:
            yield Large(
                [
                    copies.enter_context(self._copy(file)) if _scheme(file) == "s3" else local_path(file)
                    for file in files
                ]
            )

    @contextlib.contextmanager
    def _copy(self, file: str) -> Iterator[str]:
        with tempfile.TemporaryDirectory(prefix="calve-staged-") as folder:
            path = Path(folder) / "staged.parquet"
            with self._opened(file) as source, path.open("wb") as out:
                shutil.copyfileobj(source, out, 2**20)
            yield str(path)

    @contextlib.contextmanager
    def _opened(self, file: str) -> Iterator[Any]:
        if _scheme(file) == "file":
            with pa.OSFile(local_path(file)) as source:
                yield source
            return
        bucket_and_key = file.partition("://")[2]
        with self._s3_filesystem().open_input_file(bucket_and_key) as source:
            yield source

    @contextlib.contextmanager
    def created(self, file: str) -> Iterator[Any]:
        """A new file to write to."""
        if _scheme(file) == "file":
            path = Path(local_path(file))
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as sink:
                yield sink
            return
        with self._s3_filesystem().open_output_stream(file.partition("://")[2]) as sink:
            yield sink

    def delete(self, files: Sequence[str]) -> None:
        """Files that nobody refers to; as far as the store takes it."""
        with contextlib.suppress(OSError):
            for file in files:
                with contextlib.suppress(FileNotFoundError):  # it was only begun
                    self._delete(file)

    def _delete(self, file: str) -> None:
        if _scheme(file) == "file":
            Path(local_path(file)).unlink()
        else:
            self._s3_filesystem().delete_file(file.partition("://")[2])

    def _s3_filesystem(self) -> Any:
        if self._s3_files is None:
            self._s3_files = _s3_filesystem(self._s3 or S3Options())
        return self._s3_files


class Large:
    """Files that executors read. What the driver knows of them stands in their footers."""

    def __init__(self, paths: list[str]) -> None:
        self.paths = paths
        self._metadata = [pq.read_metadata(path) for path in paths]
        self.schema: pa.Schema = pq.read_schema(paths[0]).remove_metadata()

    @property
    def rows(self) -> int:
        return sum(metadata.num_rows for metadata in self._metadata)

    def frame(self, spark: SparkSession) -> DataFrame:
        return spark.read.schema(spark_schema(self.schema)).parquet(*self.paths)

    def ends(self, column: str) -> tuple[Any, Any] | None:
        """The smallest and the largest value of a column; None where a footer does not say."""
        place = [field.name for field in self.schema].index(column)
        if any(field.type.num_fields for field in list(self.schema)[:place]):
            return None  # nested columns before it: its number among the leaves is another
        chunks = [
            metadata.row_group(group).column(place).statistics
            for metadata in self._metadata
            for group in range(metadata.num_row_groups)
        ]
        if not chunks or any(chunk is None or not chunk.has_min_max for chunk in chunks):
            return None
        return min(chunk.min for chunk in chunks), max(chunk.max for chunk in chunks)


def _bytes(metadata: Any) -> int:
    groups = range(metadata.num_row_groups)
    return sum(int(metadata.row_group(group).total_byte_size) for group in groups)


def _s3_filesystem(s3: S3Options) -> Any:
    given: dict[str, Any] = {"request_timeout": S3_TIMEOUT_S, "connect_timeout": S3_TIMEOUT_S}
    if s3.endpoint:
        address = urlsplit(s3.endpoint)
        given |= {"endpoint_override": address.netloc, "scheme": address.scheme or "https"}
        given["force_virtual_addressing"] = not s3.path_style
    if s3.region:
        given["region"] = s3.region
    if s3.access_key_id and s3.secret_access_key:
        given |= {"access_key": s3.access_key_id, "secret_key": s3.secret_access_key}
    return pafs.S3FileSystem(retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=_RETRIES), **given)


def _scheme(file: str) -> str:
    scheme = urlsplit(file).scheme
    if scheme in ("s3", "s3a", "s3n"):
        return "s3"
    if scheme in ("file", ""):
        return "file"
    raise BadJob(f"staged files are on file:// or s3://, not {file}")


def is_local(file: str) -> bool:
    return _scheme(file) == "file"


def local_path(file: str) -> str:
    return unquote(urlsplit(file).path) if file.startswith("file:") else file


def spark_schema(schema: pa.Schema) -> StructType:
    """A timestamp without a zone stays without one."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Arrow as rows of the plan."""
    return spark.createDataFrame(table, schema=spark_schema(table.schema))
