"""The jars for Spark: found where they were put, and used only if they are the expected bytes."""

from __future__ import annotations

import hashlib
import http.server
import os
import shutil
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from spark_jobs import download, jars, java
from tests.unit.spark_jobs.https_repository import Repository, https_repository

BYTES = b"PK a jar"
JAR = jars.Jar("org.example", "thing", "1.0", hashlib.sha256(BYTES).hexdigest())

OTHER = jars.Jar("org.example", "other", "2.0", JAR.sha256)


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
    with pytest.raises(jars.JarsMissing, match=r"^jars missing, run `make setup` .*thing-1\.0\.jar not in"):
        jars.installed()


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


# -- where Java does not trust the repository's certificate

SPARK_REPORT = """
\t==== one: tried
\t  https://one.example/maven2/org/example/thing/1.0/thing-1.0.pom
\t  -- artifact org.example#thing;1.0!thing.jar:
\t  https://one.example/maven2/org/example/thing/1.0/thing-1.0.jar
\t==== two: tried
\t  http://two.example/org/example/thing/1.0/thing-1.0.jar
"""
MAVEN_REPORT = (
    "[ERROR] Plugin a:b:3.8.1 or one of its dependencies could not be resolved: Could not transfer artifact "
    "a:b:pom:3.8.1 from/to mirror (https://one.example/maven2): transfer failed for "
    "https://one.example/maven2/a/b/3.8.1/b-3.8.1.pom: PKIX path building failed -> [Help 1]\n"
    "[ERROR] [Help 1] http://help.example/PluginResolutionException"
)


def test_the_reports_of_resolvers_name_repositories() -> None:
    assert jars.repositories_tried(SPARK_REPORT, JAR) == ["https://one.example/maven2", "http://two.example"]
    assert jars.repositories_tried(MAVEN_REPORT, JAR) == ["https://one.example/maven2"]
    assert jars.repositories_tried("nothing was tried", JAR) == []


@pytest.fixture
def private(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Repository]:
    """Spark's resolver and Maven are set to a repository with a certificate of a private authority."""
    monkeypatch.setattr(jars, "JARS", (JAR, OTHER))
    monkeypatch.setenv("CALVE_JARS", str(tmp_path / "jars"))
    monkeypatch.delenv("CALVE_MAVEN_REPOSITORY", raising=False)
    for name in ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    download.pip_settings.cache_clear()
    with https_repository(tmp_path_factory.mktemp("https")) as found:
        for jar in (JAR, OTHER):
            found.put(jar.repository_path, BYTES)
        _set_up_spark(tmp_path, found, monkeypatch)
        _set_up_maven(tmp_path, found, monkeypatch)
        yield found
    download.pip_settings.cache_clear()


def _set_up_spark(folder: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = folder / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="here"/><resolvers><ibiblio name="here" m2compatible="true" '
        f'root="{repository.address}"/></resolvers></ivysettings>'
    )
    (folder / "spark").mkdir()
    (folder / "spark" / "spark-defaults.conf").write_text(f"spark.jars.ivySettings {settings}\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(folder / "spark"))


def _set_up_maven(folder: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "user" / ".m2").mkdir(parents=True)
    (folder / "user" / ".m2" / "settings.xml").write_text(
        "<settings><mirrors><mirror><id>here</id><mirrorOf>*</mirrorOf>"
        f"<url>{repository.address}</url></mirror></mirrors></settings>"
    )
    monkeypatch.setenv("MAVEN_OPTS", f"-Duser.home={folder / 'user'}")


def _without_maven(monkeypatch: pytest.MonkeyPatch) -> None:
    which = shutil.which
    monkeypatch.setattr(
        shutil, "which", lambda name, **options: None if name == "mvn" else which(name, **options)
    )


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE"])
def test_python_fetches_with_the_certificates_that_pip_uses(
    private: Repository, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)
    monkeypatch.setenv("CALVE_MAVEN_REPOSITORY", private.address)
    with pytest.raises(jars.JarsMissing, match="CERTIFICATE_VERIFY_FAILED"):
        jars.fetch()
    download.pip_settings.cache_clear()
    monkeypatch.setenv(variable, str(private.authority))
    jars.fetch()
    assert [path.read_bytes() for path in jars.installed()] == [BYTES, BYTES]


@pytest.mark.parametrize("with_maven", [True, False])
def test_where_java_refuses_the_certificate_python_fetches(
    private: Repository,
    with_maven: bool,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(private.authority))
    if not with_maven:
        _without_maven(monkeypatch)
    assert jars.main() == 0
    assert [path.read_bytes() for path in jars.installed()] == [BYTES, BYTES]
    shown = capfd.readouterr()
    assert shown.out.strip() == str(jars.folder())
    assert shown.err.splitlines() == [f"fetching {JAR.file}", f"fetching {OTHER.file}"]


def test_what_python_fetched_is_checked_too(
    private: Repository, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(private.authority))
    private.put(JAR.repository_path, b"something else")
    assert jars.main() == 1
    assert f"expected {JAR.sha256}: not used" in capfd.readouterr().err
    assert list(jars.folder().iterdir()) == []


def test_a_failure_is_told_without_a_traceback(
    private: Repository, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", os.devnull)
    _without_maven(monkeypatch)
    assert jars.main() == 1
    first, told = capfd.readouterr().err.splitlines()
    assert first == f"fetching {JAR.file}"
    for part in (
        "cannot fetch org.example:thing:1.0 (Spark's resolver: Server access error at url",
        "PKIX path building failed",
        f"Python: {private.address}/{JAR.repository_path}: [SSL: CERTIFICATE_VERIFY_FAILED]",
        "set CALVE_MAVEN_REPOSITORY to the address",
    ):
        assert part in told


def test_without_java_and_maven_the_message_says_what_to_do(
    private: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    _without_maven(monkeypatch)
    monkeypatch.setattr(java, "candidates", lambda _environment: iter(()))
    monkeypatch.setattr(java, "_packaged", lambda: None)
    with pytest.raises(jars.JarsMissing, match=r"Java 17 or 21 missing.*set CALVE_MAVEN_REPOSITORY"):
        jars.fetch()


@pytest.mark.parametrize("variable", ["PIP_PROXY", "http_proxy"])
def test_python_fetches_through_the_proxy_that_pip_uses(
    repository: Path, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repository itself plays the proxy: a proxy is asked for the whole address."""
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY", "PIP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    download.pip_settings.cache_clear()
    proxy = os.environ["CALVE_MAVEN_REPOSITORY"].rstrip("/")
    monkeypatch.setenv("CALVE_MAVEN_REPOSITORY", "http://repository.invalid/maven2")
    _put(repository / "http:" / "repository.invalid" / "maven2", BYTES)
    with pytest.raises(jars.JarsMissing):
        jars.fetch()
    download.pip_settings.cache_clear()
    monkeypatch.setenv(variable, proxy)
    jars.fetch()
    assert [path.read_bytes() for path in jars.installed()] == [BYTES]
    download.pip_settings.cache_clear()
