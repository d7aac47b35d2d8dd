"""Without a valid token nothing is answered, on any route; and a token counts only while its holder does."""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import json
import uuid
from typing import Any

import httpx
import pytest

from catalog.identity.roles import Role
from tests.security.answers import is_error
from tests.security.guarded import Guarded
from tests.security.raw_http import ask, head
from tests.security.requests_of_operations import ALL, Served

OPEN_PATHS = {"/health", "/ready", "/metrics", "/v1/oauth/tokens"}


def _part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _jwt(header: dict[str, Any], claims: dict[str, Any], key: bytes = b"public key") -> str:
    text = f"{_part(header)}.{_part(claims)}"
    signature = hmac.new(key, text.encode(), hashlib.sha256).digest()
    return f"{text}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def _forged(guarded: Guarded) -> dict[str, str | None]:
    """Authorization headers that are all wrong."""
    token, claims = guarded.root.token, {"sub": "root", "aud": "calve", "iss": "calve", "exp": 2**40}
    bearer = {
        "unsigned": f"{_part({'alg': 'none'})}.{_part(claims)}.",
        "unsigned, capitals": f"{_part({'alg': 'NONE'})}.{_part(claims)}.",
        "signed with a public key": _jwt({"alg": "HS256"}, claims),
        "signed with nothing": _jwt({"alg": "HS256"}, claims, b""),
        "key id as a path": _jwt({"alg": "HS256", "kid": "../../../../dev/null"}, claims, b""),
        "key id as SQL": _jwt({"alg": "HS256", "kid": "x' UNION SELECT 'a"}, claims, b"a"),
        "key by address": _jwt({"alg": "RS256", "jku": "http://169.254.169.254/jwks"}, claims),
        "certificate by address": _jwt({"alg": "RS256", "x5u": "http://127.0.0.1:1/x"}, claims),
        "key inside": _jwt({"alg": "HS256", "jwk": {"kty": "oct", "k": "YQ"}}, claims, b"a"),
        "wrong issuer": _jwt({"alg": "HS256"}, claims | {"iss": "evil"}),
        "wrong audience": _jwt({"alg": "HS256"}, claims | {"aud": "evil"}),
        "without an end": _jwt({"alg": "HS256"}, {"sub": "root"}),
        "expired": _jwt({"alg": "HS256"}, claims | {"exp": 1}),
        "made up": f"calve_{'A' * 43}",
        "one letter changed": token[:-1] + ("A" if token[-1] != "A" else "B"),
        "one letter more": token + "A",
        "one letter less": token[:-1],
        "capitals": token.upper(),
        "its hash": hashlib.sha256(token.encode()).hexdigest(),
        "the secret": guarded.root.secret,
        "twice": f"{token},{token}",
        "with a quote": f"{token}' OR '1'='1",
        "with a percent": "%",
        "pattern": "calve_" + "_" * 43,
        "null": "null",
        "undefined": "undefined",
        "long": "A" * 50_000,
        "quoted": f'"{token}"',
        "path": "../../etc/passwd",
    }
    basic = base64.b64encode(f"root:{guarded.root.secret}".encode()).decode()
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


def _path(served: Served) -> str:
    """Any path of the operation: who calls is asked before anything is looked for."""
    values = {"prefix": "acme", "warehouse": "acme", "namespace": "n", "table": "t", "view": "v", "name": "x"}
    return served.path.format(**values, dropped_id=str(uuid.uuid4()))


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
    assert answer.status in (401, 431)


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
