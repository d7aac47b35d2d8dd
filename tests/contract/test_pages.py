"""What a person finds with a browser: `/`, `/docs`, `/openapi.json`. Nothing comes from another host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import httpx
import pytest
import yaml
from openapi_spec_validator import OpenAPIV31SpecValidator
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from calve import __version__, openapi
from tests.harness.server import CalveServer

DIRECTORY = Path(__file__).parents[2] / "openapi"
BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CalveServer]:
    with CalveServer.started(tmp_path_factory.mktemp("pages")) as running:
        yield running


@pytest.fixture
def client(server: CalveServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=60) as found:
        yield found


class Resources(HTMLParser):
    """The addresses that a page loads (`loaded`) and links to (`links`)."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                (self.links if tag == "a" else self.loaded).append(value)


def test_a_program_gets_json(client: httpx.Client) -> None:
    answer = client.get("/")
    assert answer.headers["content-type"] == "application/json"
    told = answer.json()
    assert (told["name"], told["version"]) == ("calve", __version__)
    for name, path in told["links"].items():
        expected = 405 if name == "changes" else 200
        assert client.get(path).status_code == expected, path


def test_a_browser_gets_a_page_without_foreign_resources(client: httpx.Client) -> None:
    answer = client.get("/", headers=BROWSER)
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    found = Resources(answer.text)
    assert found.loaded == []
    assert {client.get(link).status_code for link in found.links} == {200}
    assert "{{" not in answer.text


def test_the_page_says_how_to_get_a_token_where_one_is_required(client: httpx.Client, tmp_path: Path) -> None:
    assert "CALVE_TOKEN" not in client.get("/", headers=BROWSER).text
    with CalveServer.started(tmp_path, {"CALVE_AUTH": "tokens"}) as guarded:
        page = httpx.get(guarded.url, headers=BROWSER, timeout=60)
    assert page.status_code == 200
    assert "calve principal create NAME --role writer" in page.text
    assert "{{" not in page.text


def test_the_host_is_escaped(client: httpx.Client) -> None:
    # An open server refuses foreign hosts; whatever it answers, it must not echo markup.
    answer = client.get("/", headers={**BROWSER, "Host": 'x"><script>alert(1)</script>'})
    assert "<script>alert" not in answer.text


def test_the_commands_of_the_page_work(client: httpx.Client) -> None:
    page = client.get("/", headers=BROWSER).text.replace("&#x27;", "'").replace("&quot;", '"')
    bodies = re.findall(r"curl -X POST '?(\S+?)'? .*?-d '(.+?)'</pre>", page, re.DOTALL)
    assert len(bodies) == 2
    for url, body in bodies:
        address = url.replace("?wait=commit", "")
        answer = client.post(address, content=body, headers={"content-type": "application/json"})
        assert answer.is_success, answer.text
        assert answer.json()["eventsReceived"] == 1


def test_the_documentation_loads_everything_from_the_server(client: httpx.Client) -> None:
    answer = client.get("/docs", headers=BROWSER)
    assert answer.status_code == 200
    loaded = Resources(answer.text).loaded
    assert len(loaded) == 3
    assert all(path.startswith("/docs/static/") for path in loaded)
    assert {client.get(path).status_code for path in loaded} == {200}
    assert not re.search(r"https?://(?!127)", answer.text)
    [script] = [path for path in loaded if path.endswith(".js")]
    assert "SwaggerUIBundle" in client.get(script).text


def test_the_description_has_all_operations_of_both_files(client: httpx.Client) -> None:
    described = client.get("/openapi.json").json()
    OpenAPIV31SpecValidator(described).validate()
    for name in (openapi.ICEBERG_FILE, openapi.LAKE_FILE):
        file = yaml.safe_load((DIRECTORY / name).read_text(encoding="utf-8"))
        assert {path: described["paths"][path] for path in file["paths"]} == file["paths"]
        for kind, components in file["components"].items():
            assert {key: described["components"][kind][key] for key in components} == components
    assert "422" not in {
        status
        for path, item in described["paths"].items()
        if not path.startswith("/v1/")
        for operation in item.values()
        for status in operation.get("responses", ())
    }
    assert set(described["components"]["securitySchemes"]) == {"OAuth2", "BearerAuth"}


@pytest.mark.parametrize("path", ["/", "/other", "/ws/", "/cdc", "/v1/config"])
def test_only_ws_is_a_websocket(server: CalveServer, path: str) -> None:
    with pytest.raises(InvalidStatus) as refusal, connect(server.url.replace("http", "ws") + path):
        pass
    assert refusal.value.response.status_code in (403, 404)
    with connect(server.url.replace("http", "ws") + "/ws") as socket:
        socket.send("ping")
        assert socket.recv() == "pong"
