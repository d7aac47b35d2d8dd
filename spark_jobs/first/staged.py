"""Staged Parquet files: read by the driver, or left to the executors where they are large.

Spark's Parquet reader goes through Hadoop's file systems, and there is none for s3:// among our jars. So the
driver reads staged files with Arrow, from file:// and s3:// alike, and Spark gets their rows as part of the
plan: no scan, no job, no second look at the file. Files of more than `ARROW_BYTES_MAX` are left where they
are and read by the executors, if they need no completing; from s3:// through a copy on the driver's disk,
where the executors share it.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from spark_jobs.first.job import BadJob
from spark_jobs.session import S3Options

ARROW_BYTES_MAX = 32 * 2**20  # as Arrow; beyond it Spark would not take the rows into the plan anyway
S3_TIMEOUT_S = 20.0
_RETRIES = 3


@dataclass(frozen=True, slots=True)
class Footer:
    """What the files say of themselves."""

    rows: int
    bytes: int
    schema: pa.Schema


class Store:
    """Where staged files are. `shares_disk` says whether executors see this machine's files."""

    def __init__(self, s3: S3Options | None = None, *, shares_disk: bool = True) -> None:
        self._s3 = s3
        self._shares_disk = shares_disk
        self._s3_files: Any = None

    def footer(self, files: Sequence[str]) -> Footer:
        if not files:
            raise BadJob("a table has changes but no files")
        rows = size = 0
        schema: Any = None
        for file in files:
            with self._opened(file) as source:
                found = pq.ParquetFile(source)
                rows += found.metadata.num_rows
                size += sum(
                    found.metadata.row_group(number).total_byte_size
                    for number in range(found.metadata.num_row_groups)
                )
                schema = schema or found.schema_arrow.remove_metadata()
        return Footer(rows, size, schema)

    def read(self, files: Sequence[str], columns: Sequence[str] | None = None) -> pa.Table:
        tables = []
        for file in files:
            with self._opened(file) as source:
                tables.append(pq.read_table(source, columns=None if columns is None else list(columns)))
        table = pa.concat_tables(tables) if len(tables) > 1 else tables[0]
        return table.replace_schema_metadata(None)

    @contextlib.contextmanager
    def paths(self, files: Sequence[str]) -> Iterator[list[str] | None]:
        """The files as paths that executors can read, until the end of the block; None if there is no way."""
        if not self._shares_disk and any(_scheme(file) == "s3" for file in files):
            yield None
            return
        with contextlib.ExitStack() as copies:
            yield [
                copies.enter_context(self._copy(file)) if _scheme(file) == "s3" else local_path(file)
                for file in files
            ]

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

    def _s3_filesystem(self) -> Any:
        if self._s3_files is None:
            self._s3_files = _s3_filesystem(self._s3 or S3Options())
        return self._s3_files


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


def local_path(file: str) -> str:
    return unquote(urlsplit(file).path) if file.startswith("file:") else file


def spark_schema(schema: pa.Schema) -> StructType:
    """A timestamp without a zone stays without one."""
    return from_arrow_schema(schema, prefer_timestamp_ntz=True)


def frame(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Arrow as rows of the plan."""
    return spark.createDataFrame(table, schema=spark_schema(table.schema))  # type: ignore[call-overload,no-any-return]


Frame = Callable[[pa.Table], DataFrame]
