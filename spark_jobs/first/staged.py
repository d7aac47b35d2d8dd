"""Staged files: Parquet that the server has typed, read by the driver. A batch is bounded, so it fits."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from spark_jobs.session import S3Options


def read(files: Sequence[str], s3: S3Options | None) -> pa.Table:
    """All rows of all files, in order."""
    return pa.concat_tables([_one(file, s3) for file in files])


def _one(location: str, s3: S3Options | None) -> pa.Table:
    scheme, _, path = location.partition("://")
    if scheme == "file":
        return pq.read_table(path, partitioning=None)
    return pq.read_table(path, filesystem=_s3(s3 or S3Options()), partitioning=None)


def _s3(options: S3Options) -> pafs.S3FileSystem:
    endpoint = options.endpoint or ""
    scheme, _, host = endpoint.partition("://")
    return pafs.S3FileSystem(
        access_key=options.access_key_id,
        secret_key=options.secret_access_key,
        region=options.region,
        scheme=scheme if host else None,
        endpoint_override=host or None,
        force_virtual_addressing=not options.path_style,
        connect_timeout=5,
        request_timeout=30,
    )
