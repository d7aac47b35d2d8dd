"""Pages for people: `/`, `/docs` and the description that it shows, `/openapi.json`.

They load nothing from other hosts: the files of Swagger UI come from the package fastapi-offline.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

import fastapi_offline
import orjson
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.responses import HTMLResponse
from starlette.staticfiles import StaticFiles

from calve import __version__
from catalog.identity.open import OpenIdentity

STATIC_URL = "/docs/static"
STATIC_FILES = Path(fastapi_offline.__file__).with_name("static")
PAGE_FILE = Path(__file__).with_name("index.html")
# What a page may load. FastAPI's page for Swagger UI has its script inline.
PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; frame-ancestors 'none'"
DOCS_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; frame-ancestors 'none'"
)
DESCRIPTION = "An Iceberg REST catalog that lands changes of databases in tables"
TOKENS_NEEDED = """<p>This server requires a token of every caller. Beside the server,
<code>calve principal create NAME --role writer</code> prints a secret and how each client uses it. Then set
<code>CALVE_TOKEN</code> for the commands of <code>calve</code>, add
<code>-H 'Authorization: Bearer TOKEN'</code> to those of curl, and create a secret in DuckDB.</p>

"""
LINKS = {
    "docs": "/docs",
    "openapi": "/openapi.json",
    "status": "/status",
    "health": "/health",
    "ready": "/ready",
    "metrics": "/metrics",
    "catalog": "/v1/config",
    "changes": "/cdc",
}

router = APIRouter(include_in_schema=False)


def add_pages(app: FastAPI) -> None:
    app.include_router(router)
    app.mount(STATIC_URL, StaticFiles(directory=STATIC_FILES), name="swagger-ui")


@router.get("/")
async def index(request: Request) -> Response:
    """A page for a browser, JSON for a program."""
    if "text/html" in request.headers.get("accept", ""):
        is_open = isinstance(request.app.state.identity, OpenIdentity)
        return _html(_page(str(request.base_url).rstrip("/"), is_open=is_open), PAGE_POLICY)
    body = {"name": "calve", "version": __version__, "description": DESCRIPTION, "links": LINKS}
    return Response(orjson.dumps(body), media_type="application/json", headers={"Vary": "Accept"})


@router.get("/docs")
async def docs() -> Response:
    """Swagger UI."""
    page = get_swagger_ui_html(
        openapi_url="/openapi.json",
        title="Calve: the API",
        swagger_js_url=f"{STATIC_URL}/swagger-ui-bundle.js",
        swagger_css_url=f"{STATIC_URL}/swagger-ui.css",
        swagger_favicon_url=f"{STATIC_URL}/favicon.png",
        swagger_ui_parameters={"docExpansion": "none", "tryItOutEnabled": True},
    )
    page.headers["Content-Security-Policy"] = DOCS_POLICY
    return page


@router.get("/openapi.json")
def openapi_json(request: Request) -> Response:
    """In a thread: to describe all routes takes a moment, once."""
    described: dict[str, Any] = request.app.openapi()
    return Response(orjson.dumps(described), media_type="application/json")


def _html(page: str, policy: str) -> Response:
    return HTMLResponse(page, headers={"Content-Security-Policy": policy, "Vary": "Accept"})


def _page(url: str, *, is_open: bool) -> str:
    text = PAGE_FILE.read_text(encoding="utf-8").replace("{{access}}", "" if is_open else TOKENS_NEEDED)
    values = {"version": __version__, "url": url, "description": DESCRIPTION}
    for name, value in values.items():
        text = text.replace("{{" + name + "}}", escape(value))
    return text
