"""Settings: where they come from, what is refused, and that each one is documented."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from calve.settings import Settings
from calve.settings_sources import MASK, default_text, is_loopback, kind_of, origin, variable
from calve.startup import SettingsError
from tests.harness.components import ROOT

FIELDS = Settings.model_fields
DOCUMENT = ROOT / "docs" / "settings.md"
SetVariables = Callable[[dict[str, str]], None]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, without a calve.toml and without variables."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CALVE_CONFIG", raising=False)
    return tmp_path


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> SetVariables:
    def set_variables(variables: dict[str, str]) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_variables


def test_the_order_of_sources(folder: Path, environment: SetVariables) -> None:
    (folder / "calve.toml").write_text('port = 1\nhost = "localhost"\nrequest_timeout_s = 5\nworkers = 2\n')
    environment({"CALVE_PORT": "2", "CALVE_HOST": "127.0.0.2"})
    settings = Settings(port="3")
    assert (settings.port, settings.host, settings.request_timeout_s) == (3, "127.0.0.2", 5.0)
    assert settings.page_size_max == 1000
    names = ("port", "host", "request_timeout_s", "page_size_max")
    sources = ["--port", "CALVE_HOST", "calve.toml", "default"]
    assert [origin(name, {"port": "3"}) for name in names] == sources


def test_a_named_file_takes_the_place_of_calve_toml(folder: Path, environment: SetVariables) -> None:
    (folder / "calve.toml").write_text("workers = 2\n")
    other = folder / "other.toml"
    other.write_text("port = 9\n")
    assert (Settings(config=other).port, Settings(config=other).workers) == (9, 1)
    environment({"CALVE_CONFIG": str(other)})
    assert (Settings().port, Settings().workers) == (9, 1)
    assert origin("port", {}) == str(other)


def test_without_anything() -> None:
    settings = Settings()
    assert settings.home == Path.cwd() / "lake"
    assert settings.database == f"sqlite:///{settings.home}/catalog.db"
    assert settings.journal == f"sqlite:///{settings.home}/journal.db"
    assert settings.warehouse_root == f"file://{settings.home}/warehouse"
    assert (settings.host, settings.port, settings.auth) == ("127.0.0.1", 8181, "open")
    assert settings.namespace_separator_text == "\x1f"
    assert settings.worker
    assert not settings.s3_path_style


def test_defaults_that_follow_others(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "a" / ".." / "b", s3_endpoint="http://127.0.0.1:9000")
    assert settings.database == f"sqlite:///{tmp_path}/b/catalog.db"
    assert settings.s3_path_style
    assert not Settings(s3_endpoint="http://127.0.0.1:9000", s3_path_style=False).s3_path_style
    shared = Settings(database="postgresql://h/n")
    assert (shared.journal, shared.worker) == ("postgresql://h/n", False)


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Settings().port = 1


def test_an_empty_variable_counts_as_unset(environment: SetVariables) -> None:
    environment({"CALVE_PORT": "", "CALVE_S3_ENDPOINT": ""})
    assert (Settings().port, Settings().s3_endpoint) == (8181, None)
    assert origin("port", {}) == "default"


@pytest.mark.parametrize(("word", "value"), [("true", True), ("0", False), ("Yes", True), ("off", False)])
def test_words_for_true_and_false(word: str, value: bool, environment: SetVariables) -> None:
    environment({"CALVE_S3_PATH_STYLE": word})
    assert Settings().s3_path_style is value


@pytest.mark.parametrize(
    "database",
    [
        "postgresql://u:p@h:1/n",
        "postgres://h/n",
        "postgresql+psycopg://h/n?sslmode=require",
        "sqlite:////tmp/x.db",
    ],
)
def test_database_addresses(database: str) -> None:
    assert Settings(database=database).database == database


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"prot": 1}, "prot is not a setting; did you mean port?"),
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
    assert str(refused.value).endswith((".", "?"))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"CALVE_PORT": "http"}, "CALVE_PORT must be a whole number, not 'http'."),
        ({"CALVE_REQUEST_TIMEOUT_S": "1m"}, "CALVE_REQUEST_TIMEOUT_S must be a number, not '1m'."),
        ({"CALVE_S3_PATH_STYLE": "maybe"}, "CALVE_S3_PATH_STYLE must be true or false, not 'maybe'."),
        ({"CALVE_PORT": "70000"}, "CALVE_PORT must be between 0 and 65535, not 70000."),
        ({"CALVE_AUTH": "basic"}, "CALVE_AUTH must be open or tokens, not basic."),
        ({"CALVE_URL": "http://a"}, "CALVE_URL, which is not a setting of calve; did you mean CALVE_URI?"),
        ({"CALVE_PROT": "1"}, "CALVE_PROT, which is not a setting of calve; did you mean CALVE_PORT?"),
        ({"CALVE_XYZZY": "1"}, "CALVE_XYZZY, which is not a setting of calve."),
        ({"CALVE_CONFIG": "/nonexistent/calve.toml"}, "file /nonexistent/calve.toml does not exist."),
    ],
)
def test_wrong_variables_are_refused(
    variables: dict[str, str], sentence: str, environment: SetVariables
) -> None:
    environment(variables)
    with pytest.raises(SettingsError, match=re.escape(sentence)):
        Settings()


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
        ("port = 70000", "must be between 0 and 65535, not 70000."),
        ("config = 'other.toml'", "has config, which is not a setting"),
    ],
)
def test_wrong_files_are_refused(folder: Path, text: str, sentence: str) -> None:
    file = folder / "wrong.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=re.escape(sentence)) as refused:
        Settings(config=file)
    assert str(file) in str(refused.value)


def test_variables_of_tools_are_left_alone(environment: SetVariables) -> None:
    tools = ("CALVE_JARS", "CALVE_MAVEN_REPOSITORY", "CALVE_FAULTS", "CALVE_TEST_X", "CALVE_BENCH_X")
    environment(dict.fromkeys(tools, "1"))
    assert Settings().port == 8181


def test_every_setting_can_be_set_in_each_way(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every default, written down and read back by each source, is the same setting."""
    plain = Settings(home=folder)
    values = {name: getattr(plain, name) for name in FIELDS if getattr(plain, name) is not None}
    texts = {name: plain.shown(name) for name in values}
    lines = [
        f"{name} = {text if kind_of(FIELDS[name]) in {int, float, bool} else repr(text)}"
        for name, text in texts.items()
    ]
    file = folder / "all.toml"
    file.write_text("\n".join(lines))
    assert Settings(**texts) == plain
    assert Settings(config=file).model_copy(update={"config": None}) == plain
    for name, text in plain.as_environment().items():
        monkeypatch.setenv(name, text)
    assert Settings() == plain
    assert {origin(name, {}) for name in texts} == {variable(name) for name in texts}


def test_secrets_are_not_shown() -> None:
    settings = Settings(
        database="postgresql://u:canary%2F1@h/n?password=canary2",
        s3_access_key_id="id",
        s3_secret_access_key="canary3",
    )
    assert settings.secrets == {"canary%2F1", "canary/1", "canary2", "canary3"}
    shown = " ".join(settings.shown(name) for name in FIELDS)
    assert "canary" not in shown + repr(settings) + str(settings)
    assert settings.shown("s3_secret_access_key") == MASK
    assert settings.shown("database") == f"postgresql://u:{MASK}@h/n?password={MASK}"


def test_a_wrong_value_does_not_give_a_secret_away() -> None:
    for values in ({"database": "mysql://u:canary@h/n"}, {"s3_endpoint": "ftp://u:canary@h"}):
        with pytest.raises(SettingsError) as refused:
            Settings(**values)
        assert "canary" not in str(refused.value)


def test_a_child_process_gets_the_secrets_too() -> None:
    settings = Settings(database="postgresql://u:canary@h/n", worker_credential="etl:canary2")
    found = settings.as_environment("database", "worker_credential", "worker_token")
    assert found == {
        "CALVE_DATABASE": "postgresql://u:canary@h/n",
        "CALVE_WORKER_CREDENTIAL": "etl:canary2",
    }


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)
    assert Settings(host=host).host == host


def test_tokens_may_listen_anywhere() -> None:
    assert Settings(host="0.0.0.0", auth="tokens").host == "0.0.0.0"


def test_a_time_or_a_size_has_its_unit_in_its_name() -> None:
    for name, field in FIELDS.items():
        if re.search(r"\btime|how long|largest", field.description or "", re.IGNORECASE):
            assert name.endswith(("_s", "_ms", "_bytes_max", "_bytes")), name


def documented() -> dict[str, list[str]]:
    """The rows of the tables in docs/settings.md, by the name of the setting."""
    lines = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {row[0].strip("`"): row for row in cells}


def test_every_setting_is_documented_and_nothing_else() -> None:
    assert list(documented()) == list(FIELDS)


@pytest.mark.parametrize("name", FIELDS)
def test_the_documentation_says_what_the_code_says(name: str) -> None:
    default = default_text(FIELDS[name])
    shown = f"`{default}`" if default else "-"
    assert documented()[name] == [f"`{name}`", shown, FIELDS[name].description]
