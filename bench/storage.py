"""Which S3 client stands behind `catalog/storage/s3.py`: pyarrow, s3fs and obstore beside each other.

    python -m bench.storage [--rounds 3] [--json PATH]

All three talk to one versitygw on loopback, interleaved, at 1 and 8 threads; each figure is the median over
the rounds. `wall` is the time of one operation as its caller sees it, `cpu` what this process burned for
it. Local files stand at the end for comparison: that is the price of the same calls without a network.

Not every client can do everything that the catalog needs, and the table is read together with this one:

                                              obstore   s3fs   pyarrow
    create only if absent (If-None-Match: *)  yes       yes    no
    limit on one request, on Linux            yes       yes    no (request_timeout is ignored there)
    many deletes in one request               yes       yes    no (one request for each file)
    synchronous, from any thread              yes       by a loop thread   yes
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import shutil
import statistics
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

import fsspec.asyn  # type: ignore[import-untyped]
import obstore
import pyarrow.fs
import s3fs
from obstore.store import S3Store

from catalog.storage.files import StorageFiles
from tests.harness.s3 import S3Access, S3Server

SMALL_BYTES, LARGE_BYTES = 2_048, 600_000
THREADS = (1, 8)
DELETE_CHUNK = 100


class Client(Protocol):
    """The five calls that the catalog makes, with keys below one bucket."""

    name: str

    def put(self, key: str, data: bytes) -> None: ...
    def get(self, key: str) -> bytes: ...
    def head(self, key: str) -> bool: ...
    def delete(self, keys: list[str]) -> None: ...


class Obstore:
    name = "obstore"

    def __init__(self, access: S3Access, bucket: str) -> None:
        self._store = S3Store(
            bucket,
            config={
                "aws_endpoint_url_s3": access.endpoint,
                "access_key_id": access.access_key_id,
                "secret_access_key": access.secret_access_key,
                "region": access.region,
            },
            client_options={"allow_http": True, "timeout": timedelta(seconds=10)},
        )

    def put(self, key: str, data: bytes) -> None:
        obstore.put(self._store, key, data, mode="create")

    def get(self, key: str) -> bytes:
        return obstore.get(self._store, key).bytes().to_bytes()

    def head(self, key: str) -> bool:
        return bool(obstore.head(self._store, key))

    def delete(self, keys: list[str]) -> None:
        obstore.delete(self._store, keys)


class S3Fs:
    name = "s3fs"

    def __init__(self, access: S3Access, bucket: str) -> None:
        self._bucket = bucket
        self._filesystem: Any = s3fs.S3FileSystem(
            key=access.access_key_id,
            secret=access.secret_access_key,
            endpoint_url=access.endpoint,
            client_kwargs={"region_name": access.region},
            config_kwargs={"max_pool_connections": 32},
            use_listings_cache=False,
            skip_instance_cache=True,
        )

    def put(self, key: str, data: bytes) -> None:
        self._filesystem.pipe_file(f"{self._bucket}/{key}", data, mode="create")

    def get(self, key: str) -> bytes:
        content: bytes = self._filesystem.cat_file(f"{self._bucket}/{key}")
        return content

    def head(self, key: str) -> bool:
        return bool(self._filesystem.info(f"{self._bucket}/{key}"))

    def delete(self, keys: list[str]) -> None:
        # `rm` would list each path first.
        paths = [f"{self._bucket}/{key}" for key in keys]
        fsspec.asyn.sync(self._filesystem.loop, self._filesystem._bulk_delete, paths)


class PyArrow:
    name = "pyarrow"

    def __init__(self, access: S3Access, bucket: str) -> None:
        self._bucket = bucket
        self._filesystem = pyarrow.fs.S3FileSystem(
            access_key=access.access_key_id,
            secret_key=access.secret_access_key,
            endpoint_override=access.endpoint,
            region=access.region,
            scheme="http",
            # Without it every write is a multipart upload of three requests.
            allow_delayed_open=True,
            background_writes=False,
        )

    def put(self, key: str, data: bytes) -> None:
        with self._filesystem.open_output_stream(f"{self._bucket}/{key}") as stream:
            stream.write(data)

    def get(self, key: str) -> bytes:
        with self._filesystem.open_input_file(f"{self._bucket}/{key}") as stream:
            content: bytes = stream.read()
            return content

    def head(self, key: str) -> bool:
        return bool(self._filesystem.get_file_info(f"{self._bucket}/{key}").is_file)

    def delete(self, keys: list[str]) -> None:
        for key in keys:
            self._filesystem.delete_file(f"{self._bucket}/{key}")


class Local:
    name = "file://"

    def __init__(self, folder: Path) -> None:
        self._folder = f"file://{folder}"
        self._files = StorageFiles()

    def put(self, key: str, data: bytes) -> None:
        self._files.create(f"{self._folder}/{key}", data)

    def get(self, key: str) -> bytes:
        return self._files.read(f"{self._folder}/{key}")

    def head(self, key: str) -> bool:
        return self._files.exists(f"{self._folder}/{key}")

    def delete(self, keys: list[str]) -> None:
        self._files.delete([f"{self._folder}/{key}" for key in keys])


@dataclass(frozen=True, slots=True)
class Row:
    """One figure: medians over the rounds, for one operation (for one file, where many are deleted)."""

    client: str
    operation: str
    threads: int
    wall_ms: float
    cpu_ms: float
    per_s: float


Sample = tuple[float, float, float]


def _timed(call: Callable[[str], object], keys: list[str], threads: int) -> Sample:
    """Wall and CPU milliseconds of one call, and calls per second."""
    began, burned = time.perf_counter(), time.process_time()
    if threads == 1:
        for key in keys:
            call(key)
    else:
        with concurrent.futures.ThreadPoolExecutor(threads) as pool:
            for _ in pool.map(call, keys):
                pass
    wall_s, cpu_s = time.perf_counter() - began, time.process_time() - burned
    return wall_s * threads / len(keys) * 1e3, cpu_s / len(keys) * 1e3, len(keys) / wall_s


def _measured(client: Client, threads: int, small: int, large: int) -> Iterator[tuple[str, Sample]]:
    prefix = uuid.uuid4().hex
    smalls = [f"{prefix}/metadata/{number:05}.json" for number in range(small)]
    larges = [f"{prefix}/metadata/large-{number:05}.json" for number in range(large)]
    small_data, large_data = b"s" * SMALL_BYTES, b"l" * LARGE_BYTES
    yield "put 2 KB", _timed(lambda key: client.put(key, small_data), smalls, threads)
    yield "put 600 KB", _timed(lambda key: client.put(key, large_data), larges, threads)
    yield "get 2 KB", _timed(client.get, smalls, threads)
    yield "get 600 KB", _timed(client.get, larges, threads)
    yield "head", _timed(client.head, smalls, threads)
    chunks = [smalls[start : start + DELETE_CHUNK] for start in range(0, len(smalls), DELETE_CHUNK)]
    named = {chunk[0]: chunk for chunk in chunks}
    wall_ms, cpu_ms, per_s = _timed(lambda key: client.delete(named[key]), list(named), threads)
    yield "delete many", (wall_ms / DELETE_CHUNK, cpu_ms / DELETE_CHUNK, per_s * DELETE_CHUNK)
    client.delete(larges)


def measure(clients: list[Client], rounds: int, *, small: int = 300, large: int = 30) -> list[Row]:
    """Every client, operation and number of threads; the clients take turns within a round."""
    samples: dict[tuple[str, str, int], list[Sample]] = {}
    for _ in range(rounds):
        for threads in THREADS:
            for client in clients:
                for operation, sample in _measured(client, threads, small, large):
                    samples.setdefault((operation, client.name, threads), []).append(sample)
    return [
        Row(client, operation, threads, *(statistics.median(column) for column in zip(*taken, strict=True)))
        for (operation, client, threads), taken in sorted(samples.items(), key=lambda item: item[0][0])
    ]


def render(rows: list[Row], reference: str = "obstore") -> str:
    """A table; the ratios are CPU and wall as multiples of `reference`."""
    by_key = {(row.operation, row.threads, row.client): row for row in rows}
    columns = " ".join(f"{name:>8}" for name in ("wall ms", "cpu ms", "per s"))
    lines = [f"{'operation':<12} threads {'client':<8} {columns}  wall x  cpu x"]
    for row in sorted(rows, key=lambda row: (row.operation, row.threads, row.cpu_ms)):
        base = by_key[row.operation, row.threads, reference]
        lines.append(
            f"{row.operation:<12} {row.threads:>7} {row.client:<8} {row.wall_ms:>8.3f} {row.cpu_ms:>8.3f} "
            f"{row.per_s:>8.0f}  {row.wall_ms / base.wall_ms:>6.1f} {row.cpu_ms / base.cpu_ms:>6.1f}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures there too")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bench-storage-"))
    try:
        with S3Server.started(folder / "s3") as server:
            bucket = server.bucket()
            clients: list[Client] = [make(server.access, bucket) for make in (Obstore, S3Fs, PyArrow)]
            clients.append(Local(folder / "files"))
            rows = measure(clients, arguments.rounds)
    finally:
        shutil.rmtree(folder)
    print(render(rows))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))


if __name__ == "__main__":
    main()
