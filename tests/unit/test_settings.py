"""Settings: where they come from, what is refused, and that each one is documented."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from calve.settings import MASK, Settings, is_loopback
from calve.sources import load
from calve.startup import SettingsError
from tests.harness.components import ROOT

ROWS = {row.name: row for row in Settings.rows()}
DOCUMENT = ROOT / "docs" / "settings.md"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A working directory with a calve.toml."""
    (tmp_path / "calve.toml").write_text('port = 1\nhost = "localhost"\nrequest_timeout_s = 5\nworkers = 2\n')
    return tmp_path


def test_the_order_of_sources(folder: Path) -> None:
    environment = {"CALVE_PORT": "2", "CALVE_HOST": "127.0.0.2", "PATH": "x"}
    loaded = load({"port": "3"}, environment, folder=folder)
    settings = loaded.settings
    assert (settings.port, settings.host, settings.request_timeout_s) == (3, "127.0.0.2", 5.0)
    assert settings.page_size_max == 1000
    shown = {name: loaded.sources[name] for name in ("port", "host", "request_timeout_s", "page_size_max")}
    file = str(folder / "calve.toml")
    assert shown == {
        "port": "--port",
        "host": "CALVE_HOST",
        "request_timeout_s": file,
        "page_size_max": "default",
    }


def test_a_named_file_takes_the_place_of_calve_toml(folder: Path) -> None:
    other = folder / "other.toml"
    other.write_text("port = 9\n")
    assert load(folder=folder, file=other).settings.port == 9
    assert load(folder=folder, environment={"CALVE_CONFIG": str(other)}).settings.port == 9
    assert load(folder=folder, file=other).settings.workers == 1


def test_without_anything() -> None:
    settings = Settings()
    assert settings.home == Path.cwd() / "lake"
    assert settings.database == f"sqlite:///{settings.home}/catalog.db"
    assert settings.warehouse_root == f"file://{settings.home}/warehouse"
    assert (settings.host, settings.port, settings.auth) == ("127.0.0.1", 8181, "open")
    assert settings.namespace_separator_text == "\x1f"
    assert not settings.s3_path_style


def test_defaults_that_follow_others(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "a" / ".." / "b", s3_endpoint="http://127.0.0.1:9000")
    assert settings.database == f"sqlite:///{tmp_path}/b/catalog.db"
    assert settings.s3_path_style
    assert not Settings(s3_endpoint="http://127.0.0.1:9000", s3_path_style=False).s3_path_style


def test_an_empty_variable_counts_as_unset() -> None:
    assert load(environment={"CALVE_PORT": "", "CALVE_S3_ENDPOINT": ""}).settings == Settings()


def test_words_for_true_and_false() -> None:
    for word, value in (("true", True), ("0", False), ("Yes", True), ("off", False)):
        assert load(environment={"CALVE_S3_PATH_STYLE": word}).settings.s3_path_style is value


@pytest.mark.parametrize(
    ("database", "url"),
    [
        ("postgresql://u:p@h:1/n", "postgresql+psycopg://u:p@h:1/n"),
        ("postgres://h/n", "postgresql+psycopg://h/n"),
        ("postgresql+psycopg://h/n?sslmode=require", "postgresql+psycopg://h/n?sslmode=require"),
        ("sqlite:////tmp/x.db", "sqlite:////tmp/x.db"),
    ],
)
def test_database_addresses(database: str, url: str) -> None:
    assert Settings(database=database).database_url == url


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"port": 65536}, "port must be between 0 and 65535, not 65536."),
    ({"port": -1}, "port must be between 0 and 65535, not -1."),
    ({"workers": 0}, "workers must be between 1 and 256, not 0."),
    ({"body_bytes_max": 10}, "body_bytes_max must be at least 1024, not 10."),
    ({"request_timeout_s": float("nan")}, "request_timeout_s must be a number, not nan."),
    ({"request_timeout_s": float("inf")}, "request_timeout_s must be a number, not inf."),
    ({"auth": "none"}, "auth must be open or tokens, not none."),
    ({"host": ""}, "host must not be empty"),
    ({"host": "0.0.0.0"}, "auth=open serves everybody without a token, so it does not listen on 0.0.0.0"),
    ({"host": "::"}, "auth=open"),
    ({"host": "lake.example"}, "auth=open"),
    ({"database": "mysql://h/n"}, "database must be sqlite:///FILE or postgresql://"),
    ({"database": "sqlite://"}, "database must be"),
    ({"database": "sqlite:///:memory:"}, "database must be"),
    ({"warehouse_root": "lake"}, "warehouse_root must be file:///FOLDER or s3://BUCKET/PREFIX, not lake."),
    ({"warehouse_root": "gs://bucket"}, "warehouse_root must be"),
    ({"s3_endpoint": "127.0.0.1:9000"}, "s3_endpoint must begin with http:// or https://"),
    ({"base_url": "lake.example"}, "base_url must begin with"),
    ({"s3_access_key_id": "a"}, "belong together"),
    ({"namespace_separator": "%1F%1F"}, "namespace_separator must stand for one character"),
    ({"namespace_separator": "%2F"}, "namespace_separator"),
    ({"namespace_separator": "a"}, "namespace_separator"),
]


@pytest.mark.parametrize(("values", "sentence"), WRONG, ids=[str(values) for values, _ in WRONG])
def test_wrong_values_are_refused_with_a_sentence(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(sentence)) as refused:
        Settings(**values)
    assert str(refused.value).endswith(".")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({"CALVE_PORT": "http"}, "CALVE_PORT must be a whole number, not 'http'."),
        ({"CALVE_REQUEST_TIMEOUT_S": "1m"}, "CALVE_REQUEST_TIMEOUT_S must be a number, not '1m'."),
        ({"CALVE_S3_PATH_STYLE": "maybe"}, "CALVE_S3_PATH_STYLE must be true or false, not 'maybe'."),
        ({"CALVE_AUTH": "basic"}, "CALVE_AUTH must be open or tokens, not basic."),
        ({"CALVE_PROT": "1"}, "CALVE_PROT, which is not a setting of calve; did you mean CALVE_PORT?"),
        ({"CALVE_XYZZY": "1"}, "CALVE_XYZZY, which is not a setting of calve."),
        ({"CALVE_CONFIG": "/nonexistent/calve.toml"}, "file /nonexistent/calve.toml does not exist."),
    ],
)
def test_wrong_variables_are_refused(environment: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(sentence)):
        load(environment=environment)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("port = 'x'", "must be a whole number, not str."),
        ("port = true", "must be a whole number, not bool."),
        ("s3_path_style = 1", "must be true or false, not int."),
        ("host = 1", "must be a text, not int."),
        ("prot = 1", "has prot, which is not a setting; did you mean port?"),
        ("[server]\nport = 1", "has server, which is not a setting"),
        ("port = ", "is not valid TOML"),
        ("auth = 'x'", "must be open or tokens, not x."),
    ],
)
def test_wrong_files_are_refused(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "calve.toml").write_text(text)
    with pytest.raises(SettingsError, match=re.escape(sentence)) as refused:
        load(folder=tmp_path)
    assert str(tmp_path / "calve.toml") in str(refused.value)


def test_variables_of_tools_are_left_alone() -> None:
    tools = ("CALVE_JARS", "CALVE_MAVEN_REPOSITORY", "CALVE_FAULTS", "CALVE_TEST_X", "CALVE_BENCH_X")
    assert load(environment=dict.fromkeys(tools, "1")).settings == Settings()


def test_every_setting_can_be_set_in_each_way(tmp_path: Path) -> None:
    """Every default, written down and read back by each source, is the same setting."""
    plain = Settings(home=tmp_path)
    values = {name: getattr(plain, name) for name in ROWS if getattr(plain, name) is not None}
    texts = {name: plain.shown(name) for name in values}
    lines = [
        f"{name} = {texts[name] if type(value) in {int, float, bool} else repr(texts[name])}"
        for name, value in values.items()
    ]
    file = tmp_path / "all.toml"
    file.write_text("\n".join(lines))
    assert load(texts).settings == plain
    assert load(environment={ROWS[name].variable: text for name, text in texts.items()}).settings == plain
    assert load(file=file).settings == plain


def test_secrets_are_not_shown() -> None:
    settings = Settings(
        database="postgresql://u:canary%2F1@h/n?password=canary2",
        s3_access_key_id="id",
        s3_secret_access_key="canary3",
    )
    assert settings.secrets == {"canary%2F1", "canary/1", "canary2", "canary3"}
    shown = " ".join(settings.shown(name) for name in ROWS)
    assert "canary" not in shown + repr(settings) + str(settings)
    assert settings.shown("s3_secret_access_key") == MASK
    assert settings.shown("database") == f"postgresql://u:{MASK}@h/n?password={MASK}"


def test_a_wrong_value_does_not_give_a_secret_away() -> None:
    for values in ({"database": "mysql://u:canary@h/n"}, {"s3_endpoint": "ftp://u:canary@h"}):
        with pytest.raises(SettingsError) as refused:
            Settings(**values)  # type: ignore[arg-type]
        assert "canary" not in str(refused.value)


def test_changed_settings_are_checked_too() -> None:
    settings = Settings().but(port=1)
    assert settings.port == 1
    with pytest.raises(SettingsError):
        settings.but(port=-1)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)
    assert Settings(host=host).host == host


def test_tokens_may_listen_anywhere() -> None:
    assert Settings(host="0.0.0.0", auth="tokens").host == "0.0.0.0"


def test_a_time_or_a_size_has_its_unit_in_its_name() -> None:
    for name, row in ROWS.items():
        if re.search(r"\btime|how long|largest", row.doc, re.IGNORECASE):
            assert name.endswith(("_s", "_ms", "_bytes_max", "_bytes")), name


def documented() -> dict[str, list[str]]:
    """The rows of the tables in docs/settings.md, by the name of the setting."""
    lines = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {row[0].strip("`"): row for row in cells}


def test_every_setting_is_documented_and_nothing_else() -> None:
    assert list(documented()) == list(ROWS)


@pytest.mark.parametrize("name", ROWS)
def test_the_documentation_says_what_the_code_says(name: str) -> None:
    row = ROWS[name]
    default = f"`{row.default_text}`" if row.default_text else "-"
    assert documented()[name] == [f"`{name}`", default, row.doc]
