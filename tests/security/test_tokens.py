"""Without a valid token nothing is answered, on any route; and a token counts only while its holder does."""

from __future__ import annotations

import base64
import hashlib
import itertools
import os
import uuid

import httpx
import pytest

from catalog.models import Role
from tests.security.answers import is_error
from tests.security.guarded import Guarded
from tests.security.raw_http import ask, head
from tests.security.requests_of_operations import ALL, INGEST, MAKERS, OPEN, Served


def _swapped(token: str, position: int) -> str:
    """The token with one of its random characters changed."""
    other = "A" if token[position] != "A" else "B"
    return token[:position] + other + token[position + 1 :]


def _forged(guarded: Guarded) -> dict[str, str | None]:
    """Authorization headers that are all wrong."""
    token, secret = guarded.root.token, guarded.root.secret
    random_part = token.removeprefix("calve_")
    hashed = hashlib.sha256(token.encode())
    jwt_header = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    jwt_claims = base64.urlsafe_b64encode(b'{"sub":"root","exp":1099511627776}').decode().rstrip("=")
    bearer = {
        "a JWT without a signature": f"{jwt_header}.{jwt_claims}.",
        "a JWT that ends in the token": f"{jwt_header}.{jwt_claims}.{token}",
        "made up": f"calve_{'A' * 43}",
        "random": f"calve_{base64.urlsafe_b64encode(os.urandom(32)).decode().rstrip('=')}",
        "first letter changed": _swapped(token, len("calve_")),
        "letter in the middle changed": _swapped(token, 25),
        "last letter changed": _swapped(token, len(token) - 1),
        "two letters exchanged": _exchanged(token),
        "reversed": f"calve_{random_part[::-1]}",
        "halves of two tokens": token[:25] + guarded.reader.token[25:],
        "one letter more": token + "A",
        "one letter less": token[:-1],
        "with padding": token + "=",
        "capitals": token.upper(),
        "capital prefix": f"CALVE_{random_part}",
        "letters in the other case": f"calve_{random_part.swapcase()}",
        "without the prefix": random_part,
        "prefix only": "calve_",
        "prefix twice": f"calve_{token}",
        "another prefix": f"calve-{random_part}",
        "base64 of the other kind": token.replace("-", "+").replace("_", "/"),
        "its hash": hashed.hexdigest(),
        "its hash as a token": f"calve_{base64.urlsafe_b64encode(hashed.digest()).decode().rstrip('=')}",
        "the hash as it is stored": f"calve_{hashed.hexdigest()}",
        "the secret": secret,
        "the secret as a token": f"calve_{secret.removeprefix('calve_secret_')}",
        "the name of a principal": "root",
        "name and secret": f"root:{secret}",
        "name and token": f"root:{token}",
        "twice": f"{token},{token}",
        "and another": f"{token} {guarded.reader.token}",
        "with a quote": f"{token}' OR '1'='1",
        "with a percent": "%",
        "a pattern of LIKE": "calve_" + "_" * 43,
        "percent-encoded": f"calve%5F{random_part}",
        "null": "null",
        "undefined": "undefined",
        "long": "A" * 10_000,
        "quoted": f'"{token}"',
        "path": "../../etc/passwd",
    }
    basic = base64.b64encode(f"root:{secret}".encode()).decode()
    whole = {
        "nothing": None,
        "no scheme": token,
        "another scheme": f"Token {token}",
        "basic": f"Basic {basic}",
        "basic with the token": "Basic " + base64.b64encode(f"root:{token}".encode()).decode(),
        "digest": f'Digest username="root", response="{token}"',
        "negotiate": f"Negotiate {basic}",
        "signature": f"AWS4-HMAC-SHA256 Credential={token}/20261116/us-east-1/s3/aws4_request",
        "tab": f"Bearer\t{token}",
        "no space": f"Bearer{token}",
        "comma": f"Bearer {token}, Bearer {token}",
        "scheme only": "Bearer",
    }
    return {**{label: f"Bearer {text}" for label, text in bearer.items()}, **whole}


def _exchanged(token: str) -> str:
    """Two neighbours that differ, in each other's place."""
    at = next(n for n in range(6, len(token) - 1) if token[n] != token[n + 1])
    return token[:at] + token[at + 1] + token[at] + token[at + 2 :]


def _path(served: Served) -> str:
    """Any path of the operation: who calls is asked before anything is looked for."""
    values = {"prefix": "acme", "warehouse": "acme", "namespace": "n", "table": "t", "view": "v", "name": "x"}
    values |= {"snapshot_id": "1", "key": "1", "source": "s"}
    made_up = ("dropped_id", "job", "letter", "query_id", "topic", "webhook_id")
    values |= {name: str(uuid.uuid4()) for name in made_up}
    return served.path.format(**values)


def test_every_secured_operation_has_a_request() -> None:
    """Every new operation needs a request here, or an entry among the open ones."""
    described = {served.id for served in ALL}
    assert set(MAKERS) == described
    assert len(INGEST) == 41
    assert OPEN.isdisjoint(described)


def test_every_forged_token_is_refused(guarded: Guarded) -> None:
    forged = _forged(guarded)
    assert len(forged) >= 40
    wrong = {}
    with guarded.client() as http:
        refusals = set()
        for label, header in forged.items():
            answer = http.get("/v1/acme/namespaces", headers={"Authorization": header} if header else {})
            refusals.add((answer.status_code, answer.text, answer.headers.get("www-authenticate")))
            if answer.status_code != 401 or not is_error(answer):
                wrong[label] = answer.text
        assert http.get("/v1/acme/namespaces", headers=guarded.root.header).status_code == 200
    assert not wrong
    assert len(refusals) == 1  # the answer does not say what was almost right
    assert (next(iter(refusals))[2] or "").startswith("Bearer")


def test_no_operation_answers_without_a_valid_token(guarded: Guarded) -> None:
    before, wrong = guarded.heads(), []
    headers: tuple[dict[str, str], ...] = (
        {},
        {"Authorization": f"Bearer calve_{'A' * 43}"},
        {"Authorization": "Basic cm9vdDpyb290"},
    )
    with guarded.client() as http:
        for served, header in itertools.product(ALL, headers):
            body = b"{}" if served.method in ("POST", "PUT") else None
            for query in ("", f"?warehouse=acme&access_token={guarded.root.token}"):
                answer = http.request(served.method, _path(served) + query, headers=header, content=body)
                if answer.status_code != 401 or not (served.method == "HEAD" or is_error(answer)):
                    wrong.append((served.id, header, answer.status_code, answer.text[:200]))
    assert not wrong
    assert guarded.heads() == before


def test_a_request_of_the_wrong_form_is_refused_for_its_token_first(guarded: Guarded) -> None:
    """Who sends no token learns nothing about parameters, nor which bodies can be parsed."""
    wrong = []
    json = {"Content-Type": "application/json"}
    with guarded.client() as http:
        for served, body in itertools.product(ALL, (b"{", b"[1]", b"\xff", b'{"no-such-field": 1}', b"")):
            for query in ("", "?limit=x&page-size=x&after=x&as_of=&dry_run=x"):
                content = body if served.method in ("POST", "PUT", "PATCH") else None
                answer = http.request(served.method, _path(served) + query, headers=json, content=content)
                if answer.status_code != 401:
                    wrong.append((served.id, body, query, answer.status_code, answer.text[:200]))
    assert not wrong


def test_only_the_known_paths_are_open(guarded: Guarded) -> None:
    with guarded.client() as http:
        for path in ("/", "/docs", "/openapi.json", "/health", "/ready", "/metrics"):
            assert http.get(path).status_code == 200, path
        for path in (
            "/redoc",
            "/v1",
            "/v1/",
            "/lake",
            "/lake/v1/principals",
            "/admin",
        ):
            assert http.get(path).status_code == 404, path


def test_a_very_long_token_is_refused_and_takes_no_memory(guarded: Guarded) -> None:
    headers = {"Authorization": "Bearer " + "A" * 2**20}
    answer = ask(guarded.stack.server.port, head("GET", "/v1/acme/namespaces", headers))
    assert answer.status in (400, 401, 431)  # the parser of HTTP may refuse a head of this size before


@pytest.mark.parametrize("order", ["sound first", "forged first"])
def test_two_tokens_are_not_a_choice(guarded: Guarded, order: str) -> None:
    """One part of a chain may look at the first header and another at the last. Every route must agree."""
    pair = [("Authorization", f"Bearer {guarded.root.token}"), ("Authorization", f"Bearer calve_{'A' * 43}")]
    if order != "sound first":
        pair.reverse()
    with guarded.client() as http:
        statuses = {
            http.get(path, headers=pair).status_code
            for path in ("/v1/acme/namespaces", "/lake/v1/acme/events")
        }
    assert statuses <= {400, 401}, statuses


def test_what_is_taken_away_is_gone_with_the_next_request(guarded: Guarded) -> None:
    name = f"p{uuid.uuid4().hex[:8]}"
    secret = guarded.principals.create(name, {"acme": Role.READER})
    with guarded.client() as http:

        def status(token: str) -> int:
            return http.get("/v1/acme/namespaces", headers={"Authorization": f"Bearer {token}"}).status_code

        token = guarded.token(name, secret)
        assert status(token) == 200
        guarded.principals.revoke(name, "acme")
        assert status(token) == 404
        guarded.principals.grant(name, "acme", Role.READER)
        assert status(token) == 200
        rotated = guarded.principals.rotate(name)
        assert status(token) == 401
        token = guarded.token(name, rotated)
        guarded.principals.disable(name)
        assert status(token) == 401
        guarded.principals.enable(name)
        assert status(token) == 401  # a token that was taken away does not come back
        token = guarded.token(name, rotated)
        guarded.principals.delete(name)
        assert status(token) == 401


@pytest.mark.parametrize(
    "form",
    [
        {},
        {"grant_type": "password", "username": "root", "password": "x"},
        {"grant_type": "client_credentials"},
        {"grant_type": "client_credentials", "client_id": "root", "client_secret": ""},
        {"grant_type": "client_credentials", "client_id": "root", "client_secret": "x"},
        {"grant_type": "client_credentials", "client_id": "root' --", "client_secret": "x"},
        {"grant_type": "client_credentials", "client_id": "../root", "client_secret": "x"},
        {"grant_type": "client_credentials", "client_id": "r" * 5000, "client_secret": "x"},
        {"grant_type": "client_credentials", "client_id": "root", "client_secret": "x" * 5000},
        {"grant_type": "urn:ietf:params:oauth:grant-type:token-exchange", "subject_token": "x"},
    ],
    ids=lambda form: str(form)[:60],
)
def test_no_token_without_the_secret(guarded: Guarded, form: dict[str, str]) -> None:
    answer = httpx.post(f"{guarded.url}/v1/oauth/tokens", data=form, timeout=60)
    assert answer.status_code in (400, 401), answer.text
    assert set(answer.json()) == {"error", "error_description"}
    assert answer.headers["cache-control"] == "no-store"


def test_an_unknown_client_looks_like_a_wrong_secret(guarded: Guarded) -> None:
    answers = []
    for name in ("root", "nosuch"):
        form = {"grant_type": "client_credentials", "client_id": name, "client_secret": "calve_secret_x"}
        answer = httpx.post(f"{guarded.url}/v1/oauth/tokens", data=form, timeout=60)
        answers.append((answer.status_code, answer.text))
    assert answers[0] == answers[1]
    assert answers[0][0] == 401
