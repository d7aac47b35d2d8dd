"""An empty root on one kind of storage, whose files a test can see on this machine.

@pytest.fixture(params=STORAGE_KINDS)
def storage(request, tmp_path): return storage_root_of(request, tmp_path)
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import pytest

from catalog.storage.files import StorageFiles
from catalog.storage.s3 import S3Settings
from tests.harness.s3 import S3Access, S3Server

StorageKind = Literal["file", "s3"]
STORAGE_KINDS: tuple[StorageKind, ...] = get_args(StorageKind)


@dataclass(frozen=True, slots=True)
class StorageRoot:
    """`root` is the location of an empty folder, `folder` is where its files are on this machine."""

    name: StorageKind
    files: StorageFiles
    root: str
    folder: Path
    s3: S3Access | None = None

    def at(self, path: str) -> str:
        return f"{self.root}/{path}"

    def found(self) -> set[str]:
        """Every file below the root, as locations. A folder that a purge deletes meanwhile has none."""
        return {
            self.at((Path(folder) / name).relative_to(self.folder).as_posix())
            for folder, _, names in os.walk(self.folder)
            for name in names
        }


def s3_settings(access: S3Access, endpoint: str | None = None) -> S3Settings:
    """Settings for the S3 server of the tests, or for something in front of it."""
    return S3Settings(
        endpoint=endpoint or access.endpoint,
        region=access.region,
        access_key_id=access.access_key_id,
        secret_access_key=access.secret_access_key,
    )


def storage_root_of(request: pytest.FixtureRequest, tmp_path: Path) -> StorageRoot:
    """The storage that the fixture's parameter names; the S3 server starts only if it is asked for."""
    if request.param == "file":
        folder = tmp_path / "warehouse"
        folder.mkdir()
        root = f"file://{folder}"
        return StorageRoot("file", StorageFiles(file_roots=[root]), root, folder)
    server: S3Server = request.getfixturevalue("s3")
    root = f"s3://{server.bucket()}/warehouse-{uuid.uuid4().hex[:6]}"
    return StorageRoot("s3", StorageFiles(s3_settings(server.access)), root, server.path(root), server.access)
