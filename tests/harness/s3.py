"""A private S3 server (versitygw) that checks every signature and keeps buckets as plain folders.

    with S3Server.started(folder) as s3:
        bucket = s3.bucket()                        # a fresh one
        s3.path(f"s3://{bucket}/a/b").read_bytes()  # the file behind an object: look at it, or damage it

`stop`, `kill` and `start` may be called in between: the port and the objects stay.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.harness import components
from tests.harness.ports import accepts, free_port
from tests.harness.process import Child


@dataclass(frozen=True, slots=True)
class S3Access:
    """What a client needs to reach the store."""

    endpoint: str
    access_key_id: str = "calve"
    secret_access_key: str = "calvesecret"
    region: str = "us-east-1"

    @property
    def iceberg(self) -> dict[str, str]:
        """The same as catalog properties: PyIceberg and Iceberg's Java library read these names."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": self.access_key_id,
            "s3.secret-access-key": self.secret_access_key,
            "s3.region": self.region,
            "s3.path-style-access": "true",
            "client.region": self.region,
        }

    @property
    def settings(self) -> dict[str, str]:
        """The same as settings of the server."""
        return {
            "CALVE_S3_ENDPOINT": self.endpoint,
            "CALVE_S3_REGION": self.region,
            "CALVE_S3_ACCESS_KEY_ID": self.access_key_id,
            "CALVE_S3_SECRET_ACCESS_KEY": self.secret_access_key,
            "CALVE_S3_PATH_STYLE": "true",
        }


class S3Server:
    """One versitygw process over one folder."""

    def __init__(self, folder: Path, host: str = "127.0.0.1") -> None:
        self.port = free_port()
        self.access = S3Access(f"http://{host}:{self.port}")
        self._host = host
        self._buckets = folder / "buckets"
        self._buckets.mkdir(parents=True)
        accounts = folder / "accounts"
        accounts.mkdir()
        self._child = Child(
            [
                str(components.versitygw()),
                f"--port={host}:{self.port}",
                f"--iam-dir={accounts}",
                f"--region={self.access.region}",
                "--quiet",
                "posix",
                str(self._buckets),
            ],
            log=folder / "versitygw.log",
            environment={
                **os.environ,
                "ROOT_ACCESS_KEY": self.access.access_key_id,
                "ROOT_SECRET_KEY": self.access.secret_access_key,
            },
        )

    @classmethod
    @contextlib.contextmanager
    def started(cls, folder: Path, host: str = "127.0.0.1") -> Iterator[S3Server]:
        """A new store below `folder`, running until the end of the block. It listens on `host` alone."""
        server = cls(folder, host)
        server.start()
        try:
            yield server
        finally:
            server.stop()

    def bucket(self, name: str | None = None) -> str:
        """The name of a fresh, empty bucket; a name of the caller's choice must be new."""
        name = name or f"lake-{uuid.uuid4().hex[:12]}"
        (self._buckets / name).mkdir()
        return name

    def path(self, location: str) -> Path:
        """The file behind an object, or the folder behind a prefix, of an s3:// location."""
        scheme, _, rest = location.partition("://")
        assert scheme == "s3", location
        return self._buckets / rest

    def start(self) -> None:
        self._child.start(lambda: accepts(self.port, self._host))

    def stop(self) -> None:
        self._child.stop()

    def kill(self) -> None:
        self._child.kill()
