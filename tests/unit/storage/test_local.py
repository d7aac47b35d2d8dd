"""Local files: directories, failures in the middle, symbolic links."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from catalog.errors import FileNotFound, Forbidden, Unavailable
from catalog.storage import files as local
from catalog.storage.files import StorageFiles

REASONS = {
    errno.ENOSPC: "no space is left on the device",
    errno.EDQUOT: "the disk quota is used up",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EIO: "input/output error",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "warehouse"
    folder.mkdir()
    return folder


@pytest.fixture
def files(root: Path) -> StorageFiles:
    return StorageFiles(file_roots=[f"file://{root}"])


def fails(number: int) -> Callable[..., int]:
    def call(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    return call


@pytest.mark.parametrize("number", REASONS)
@pytest.mark.parametrize("call", ["open", "mkdir"])
def test_a_create_that_cannot_begin(
    files: StorageFiles, root: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    monkeypatch.setattr(os, call, fails(number))
    with pytest.raises(Unavailable, match=rf"Cannot write file://{root}/t/1: {REASONS[number]}"):
        files.create(f"file://{root}/t/1", b"data")


@pytest.mark.parametrize("number", REASONS)
@pytest.mark.parametrize("call", ["write", "fdatasync"])
def test_a_create_that_fails_leaves_nothing(
    files: StorageFiles, root: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, call, fails(number))
        with pytest.raises(Unavailable, match=REASONS[number]):
            files.create(f"file://{root}/t/1", b"data")
    assert list((root / "t").iterdir()) == []
    files.create(f"file://{root}/t/1", b"data")


def test_a_create_that_fails_halfway_leaves_nothing(files: StorageFiles, root: Path) -> None:
    """A real limit of the system: the first part is written, then the file may not grow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_096, hard))
    try:
        with pytest.raises(Unavailable, match="the file is larger than the system allows"):
            files.create(f"file://{root}/t/1", b"x" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list((root / "t").iterdir()) == []


def test_short_writes_are_continued(files: StorageFiles, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    files.create(f"file://{root}/1", bytes(range(100)))
    assert (root / "1").read_bytes() == bytes(range(100))


def test_a_torn_file_after_kill_disturbs_nobody(files: StorageFiles, root: Path) -> None:
    program = (
        "import os, signal; from catalog.storage.files import StorageFiles\n"
        "os.fdatasync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"StorageFiles().create('file://{root}/t/metadata/1.json', b'half')"
    )
    ended = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[3], check=False)
    assert ended.returncode == -9
    with pytest.raises(FileExistsError):
        files.create(f"file://{root}/t/metadata/1.json", b"whole")
    files.create(f"file://{root}/t/metadata/2.json", b"whole")
    assert files.read(f"file://{root}/t/metadata/2.json") == b"whole"
    assert files.delete([f"file://{root}/t/metadata/1.json"]) == 1


def test_a_file_is_synchronised_whole_before_create_returns(
    files: StorageFiles, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under its own name: nobody looks for it before a row points to it, and that comes after the sync."""
    synced: list[tuple[str, bytes]] = []

    def note(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((str(path), path.read_bytes()))

    monkeypatch.setattr(os, "fdatasync", note)
    files.create(f"file://{root}/ns/t/metadata/1", b"whole")
    assert synced == [(f"{root}/ns/t/metadata/1", b"whole")]


def test_a_file_that_cannot_be_synchronised_is_not_there(
    files: StorageFiles, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fdatasync", fails(errno.EIO))
    with pytest.raises(Unavailable):
        files.create(f"file://{root}/t/1", b"whole")
    assert list((root / "t").iterdir()) == []


def test_a_known_directory_is_not_looked_at_again(
    files: StorageFiles, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.create(f"file://{root}/t/1", b"")
    for call in ("isdir", "realpath"):
        monkeypatch.setattr(os.path, call, fails(errno.EIO))
    files.create(f"file://{root}/t/2", b"")
    assert files.read(f"file://{root}/t/2") == b""


def test_a_directory_that_vanished_is_made_again(files: StorageFiles, root: Path) -> None:
    files.create(f"file://{root}/ns/t/1", b"")
    shutil.rmtree(root / "ns")
    files.create(f"file://{root}/ns/t/2", b"")
    assert files.exists(f"file://{root}/ns/t/2")


def test_the_memory_of_directories_is_bounded(
    files: StorageFiles, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_DIRECTORIES_MAX", 3)
    for number in range(10):
        files.create(f"file://{root}/{number}/1", b"")
    adapter = files._adapters["file"]
    assert isinstance(adapter, local.LocalFiles)
    assert len(adapter._directories) <= 3


@pytest.mark.parametrize("link", ["t", "t/metadata"])
def test_a_link_out_of_the_warehouse_is_not_followed(
    files: StorageFiles, root: Path, tmp_path: Path, link: str
) -> None:
    outside = tmp_path / "outside"
    (outside / "metadata").mkdir(parents=True)
    (outside / "1").write_text("theirs")
    (outside / "metadata" / "1").write_text("theirs")
    (root / link).parent.mkdir(exist_ok=True)
    (root / link).symlink_to(outside)
    old, new = f"file://{root}/{link}/1", f"file://{root}/{link}/new/2"
    for call in (
        lambda: files.create(new, b""),
        lambda: files.read(old),
        lambda: files.exists(old),
        lambda: files.delete([old]),
        lambda: files.make_directory(f"file://{root}/{link}/new"),
    ):
        with pytest.raises(Forbidden, match="symbolic link leads out of the warehouse"):
            call()
    assert sorted(path.name for path in outside.iterdir()) == ["1", "metadata"]
    assert (outside / "1").read_text() == "theirs"


def test_delete_goes_on_after_a_refusal(files: StorageFiles, root: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (root / "link").symlink_to(tmp_path / "outside")
    files.create(f"file://{root}/t/1", b"")
    with pytest.raises(Forbidden):
        files.delete([f"file://{root}/link/1", f"file://{root}/t/1"])
    assert not files.exists(f"file://{root}/t/1")


def test_links_inside_and_above_the_warehouse_are_fine(root: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(root)
    (root / "real").mkdir()
    (root / "link").symlink_to(root / "real")
    files = StorageFiles(file_roots=[f"file://{tmp_path}/alias"])
    files.create(f"file://{tmp_path}/alias/link/1", b"data")
    assert (root / "real" / "1").read_bytes() == b"data"


def test_a_probe_makes_the_root_known(root: Path, tmp_path: Path) -> None:
    files = StorageFiles()
    (root / "link").symlink_to(tmp_path)
    files.probe(f"file://{root}")
    with pytest.raises(Forbidden):
        files.create(f"file://{root}/link/1", b"")


def test_a_file_is_never_opened_through_a_link(root: Path) -> None:
    files = StorageFiles()  # holds without a known root, too
    (root / "secret").write_text("theirs")
    (root / "1.json").symlink_to(root / "secret")
    (root / "2.json").symlink_to(root / "nowhere")
    with pytest.raises(Forbidden, match="the file is a symbolic link"):
        files.read(f"file://{root}/1.json")
    for name in ("1.json", "2.json"):
        assert not files.exists(f"file://{root}/{name}")
        with pytest.raises(FileExistsError):
            files.create(f"file://{root}/{name}", b"")
    assert not (root / "nowhere").exists()
    files.delete([f"file://{root}/1.json"])
    assert (root / "secret").read_text() == "theirs"


def test_what_is_no_plain_file_is_no_file(files: StorageFiles, root: Path) -> None:
    os.mkfifo(root / "pipe")
    with pytest.raises(FileNotFound):
        files.read(f"file://{root}/pipe")
    assert not files.exists(f"file://{root}/pipe")
