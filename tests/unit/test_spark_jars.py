"""The jars for Spark: found where they were put, and used only if they are the expected bytes."""

from __future__ import annotations

import hashlib
import http.server
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from spark_jobs import jars

BYTES = b"PK a jar"
JAR = jars.Jar("org.example", "thing", "1.0", hashlib.sha256(BYTES).hexdigest())


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
        pass


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder in Maven's layout behind HTTP, an empty cache, and one jar to fetch."""
    served = tmp_path / "repository"
    served.mkdir()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(served)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    monkeypatch.setattr(jars, "JARS", (JAR,))
    monkeypatch.setenv("CALVE_JARS", str(tmp_path / "jars"))
    monkeypatch.setenv("CALVE_MAVEN_REPOSITORY", f"http://127.0.0.1:{server.server_port}/")
    yield served
    server.shutdown()
    thread.join()
    server.server_close()


def _put(repository: Path, data: bytes) -> Path:
    path = repository / "org/example/thing/1.0/thing-1.0.jar"
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    return path


def test_a_missing_jar_is_fetched_once(repository: Path) -> None:
    served = _put(repository, BYTES)
    assert jars.fetch() == jars.folder()
    served.unlink()
    jars.fetch()
    assert [path.read_bytes() for path in jars.installed()] == [BYTES]


def test_other_bytes_are_refused_and_leave_nothing(repository: Path) -> None:
    _put(repository, b"something else")
    with pytest.raises(jars.JarsMissing, match=f"expected {JAR.sha256}"):
        jars.fetch()
    assert list(jars.folder().iterdir()) == []


def test_an_absent_jar_is_named_with_its_address(repository: Path) -> None:
    with pytest.raises(jars.JarsMissing, match=r"/org/example/thing/1\.0/thing-1\.0\.jar: HTTP Error 404"):
        jars.fetch()
    with pytest.raises(jars.JarsMissing, match=r"thing-1\.0\.jar not in .*python -m spark_jobs\.jars"):
        jars.installed()


@pytest.mark.usefixtures("repository")
def test_without_maven_and_without_an_address_the_message_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CALVE_MAVEN_REPOSITORY")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(jars.JarsMissing, match="install Maven, or set CALVE_MAVEN_REPOSITORY"):
        jars.fetch()


@pytest.mark.usefixtures("repository")
def test_only_http_is_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVE_MAVEN_REPOSITORY", "file:///etc")
    with pytest.raises(jars.JarsMissing, match="must begin with https:// or http://"):
        jars.fetch()


def test_the_folder_is_the_users_cache_unless_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CALVE_JARS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jars.folder() == tmp_path / "calve" / "jars"
    monkeypatch.setenv("CALVE_JARS", str(tmp_path / "mine"))
    assert jars.folder() == tmp_path / "mine"
