"""What is in the way of a start becomes a sentence; and what is printed when nothing is."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from calve.serve.ground import listen, prepare_home
from calve.serve.hints import address, hints
from calve.settings import Settings
from calve.startup import StartupError


def test_a_busy_port() -> None:
    with contextlib.closing(listen("127.0.0.1", 0)) as first:
        port = first.getsockname()[1]
        with pytest.raises(StartupError, match=rf"^port {port} on 127.0.0.1 is in use; .*--port\.$"):
            listen("127.0.0.1", port)


def test_a_host_that_is_not_ours() -> None:
    with pytest.raises(StartupError, match=r"192\.0\.2\.1 is not an address of this machine"):
        listen("192.0.2.1", 0)
    with pytest.raises(StartupError, match=r"no\.such\.host\.invalid cannot be resolved"):
        listen("no.such.host.invalid", 0)


def test_a_home_is_made(tmp_path: Path) -> None:
    home = tmp_path / "a" / "lake"
    prepare_home(Settings(home=home))
    assert home.is_dir()
    assert not list(home.iterdir())


def test_a_home_that_cannot_be_written_to(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    for home in (file, file / "lake", Path("/proc/lake")):
        with pytest.raises(StartupError, match=f"the folder {home} cannot be written to .*--home"):
            prepare_home(Settings(home=home))


def test_a_home_that_nobody_needs_is_not_made(tmp_path: Path) -> None:
    home = tmp_path / "lake"
    prepare_home(Settings(home=home, database="postgresql://h/n", warehouse_root="s3://bucket/prefix"))
    assert not home.exists()


def test_addresses() -> None:
    assert address(Settings(), 8181) == "http://127.0.0.1:8181"
    assert address(Settings(host="::1"), 1) == "http://[::1]:1"
    assert address(Settings(host="0.0.0.0", auth="tokens"), 1) == "http://127.0.0.1:1"
    assert address(Settings(base_url="https://lake.example/"), 1) == "https://lake.example"


@pytest.mark.parametrize("settings", [Settings(), Settings(auth="tokens", warehouse_root="s3://bucket/p")])
def test_hints_name_the_address_in_all_three(settings: Settings) -> None:
    text = hints(settings, 4711)
    curl, duckdb, spark = text.index("curl\n"), text.index("DuckDB\n"), text.index("Spark\n")
    for part in (text[curl:duckdb], text[duckdb:spark], text[spark:]):
        assert "http://127.0.0.1:4711" in part
    assert ("AUTHORIZATION_TYPE 'none'" in text) == (settings.auth == "open")
    assert ("credential=ID:SECRET" in text) == (settings.auth == "tokens")
    assert ("iceberg-aws-bundle" in text) == settings.warehouse_root.startswith("s3")
