"""Token requests: every form that clients send is read, the rest is refused in the shape of RFC 6749."""

from __future__ import annotations

import contextlib
from base64 import b64encode
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.identity import oauth
from catalog.identity.oauth import Client, ClientCredentials, OAuthError, TokenExchange, parse_token_request

CLIENT = {"grant_type": "client_credentials", "client_id": "etl", "client_secret": "s"}
EXCHANGE = {
    "grant_type": oauth.TOKEN_EXCHANGE,
    "subject_token": "t",
    "subject_token_type": oauth.ACCESS_TOKEN_TYPE,
}


def basic(text: str) -> str:
    return "Basic " + b64encode(text.encode()).decode()


def parse(
    form: dict[str, str] | bytes, authorization: str | None = None, content_type: str | None = oauth.FORM
) -> oauth.Grant:
    body = form if isinstance(form, bytes) else urlencode(form).encode()
    return parse_token_request(authorization, content_type, body)


def refusal(
    form: dict[str, str] | bytes, authorization: str | None = None, content_type: str | None = oauth.FORM
) -> tuple[int, str]:
    with pytest.raises(OAuthError) as refused:
        parse(form, authorization, content_type)
    return refused.value.status, refused.value.error


# -- what clients send ---------------------------------------------------------------------------------------


def test_java_and_pyiceberg_put_credentials_into_the_form() -> None:
    assert parse(CLIENT | {"scope": "catalog"}) == ClientCredentials(Client("etl", "s"), "catalog")


def test_duckdb_puts_them_into_the_header() -> None:
    form = b"grant_type=client_credentials&scope=PRINCIPAL_ROLE%3AALL"
    assert parse(form, basic("etl:s")) == ClientCredentials(Client("etl", "s"), "PRINCIPAL_ROLE:ALL")


def test_a_secret_may_hold_colons_and_percent_signs() -> None:
    form = {"grant_type": "client_credentials"}
    assert parse(form, basic("etl:a:b%3A+c")) == ClientCredentials(Client("etl", "a:b%3A+c"), "catalog")
    secret = {"client_secret": "a:b%3A+c &="}
    assert parse(CLIENT | secret) == ClientCredentials(Client("etl", "a:b%3A+c &="), "catalog")


def test_java_renews_with_a_bearer_header() -> None:
    assert parse(EXCHANGE | {"scope": ""}, "Bearer calve_x") == TokenExchange("t", None, "catalog")


def test_java_renews_an_expired_token_with_its_credentials() -> None:
    assert parse(EXCHANGE, basic("etl:s")) == TokenExchange("t", Client("etl", "s"), "catalog")


def test_unknown_fields_and_charsets_are_fine() -> None:
    form = CLIENT | {"audience": "x", "resource": "y"}
    assert parse(form, content_type="Application/X-WWW-Form-UrlEncoded; charset=UTF-8") == parse(CLIENT)


def test_the_same_credentials_twice_are_one() -> None:
    assert parse(CLIENT, basic("etl:s")) == parse(CLIENT)
    assert refusal(CLIENT, basic("etl:other")) == (400, "invalid_request")


# -- what is refused -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "authorization"),
    [
        ({"grant_type": "client_credentials"}, None),
        ({"grant_type": "client_credentials"}, "Bearer calve_x"),
        ({"grant_type": "client_credentials", "client_id": "etl"}, None),
        ({"grant_type": "client_credentials", "client_secret": "s"}, None),
        (CLIENT | {"client_id": ""}, None),
        (CLIENT | {"client_id": "../etl"}, None),
        (CLIENT | {"client_id": "et\x00l"}, None),
        (CLIENT | {"client_id": "e" * 64}, None),
        (CLIENT | {"client_secret": ""}, None),
        (CLIENT | {"client_secret": "s" * 257}, None),
        ({"grant_type": "client_credentials"}, "Basic"),
        ({"grant_type": "client_credentials"}, "Basic !!!"),
        ({"grant_type": "client_credentials"}, "Basic \xe9\xe9"),
        ({"grant_type": "client_credentials"}, "Basic " + b64encode(b"\xff\xfe:s").decode()),
        ({"grant_type": "client_credentials"}, "Basic " + "A" * 1024 * 1024),
        ({"grant_type": "client_credentials"}, basic("etl")),
        ({"grant_type": "client_credentials"}, basic("etl:")),
        ({"grant_type": "client_credentials"}, basic(":s")),
        ({"grant_type": "client_credentials"}, basic("e tl:s")),
    ],
)
def test_wrong_credentials_look_alike(form: dict[str, str], authorization: str | None) -> None:
    with pytest.raises(OAuthError) as refused:
        parse(form, authorization)
    assert refused.value.status == 401
    assert refused.value.body == {
        "error": "invalid_client",
        "error_description": "the client id or the client secret is wrong",
    }
    assert refused.value.headers == {"Cache-Control": "no-store", "WWW-Authenticate": 'Basic realm="calve"'}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"grant_type=",
        b"{}",
        b"\xff\xfe",
        b"grant_type=%ff",
        b"grant_type=client_credentials&grant_type=client_credentials&client_id=etl&client_secret=s",
        b"grant_type=client_credentials&client_id=etl&client_secret=s&client_secret=s",
        b"grant_type=client_credentials&" + b"&".join(b"f%d=1" % number for number in range(40)),
        urlencode(CLIENT | {"pad": "x" * oauth.BODY_BYTES_MAX}).encode(),
        urlencode(EXCHANGE | {"subject_token": ""}).encode(),
        urlencode(EXCHANGE | {"subject_token_type": "urn:ietf:params:oauth:token-type:jwt"}).encode(),
        urlencode(EXCHANGE | {"requested_token_type": "urn:ietf:params:oauth:token-type:jwt"}).encode(),
        b"grant_type=" + oauth.TOKEN_EXCHANGE.encode() + b"&subject_token=t",
    ],
)
def test_malformed_requests(body: bytes) -> None:
    assert refusal(body) == (400, "invalid_request")


@pytest.mark.parametrize("content_type", [None, "", "application/json", "multipart/form-data; boundary=x"])
def test_only_forms(content_type: str | None) -> None:
    assert refusal(CLIENT, content_type=content_type) == (400, "invalid_request")


@pytest.mark.parametrize(
    "grant_type", ["password", "refresh_token", "authorization_code", "CLIENT_CREDENTIALS"]
)
def test_other_grants(grant_type: str) -> None:
    assert refusal(CLIENT | {"grant_type": grant_type}) == (400, "unsupported_grant_type")


@pytest.mark.parametrize("scope", ["x" * 1025, "a\nb", 'a"b', "a\\b", "é", "\x00"])
def test_scopes_that_no_header_could_carry(scope: str) -> None:
    assert refusal(CLIENT | {"scope": scope}) == (400, "invalid_scope")


@given(st.binary(max_size=300), st.none() | st.text(max_size=100))
def test_any_bytes_give_a_grant_or_a_refusal(body: bytes, authorization: str | None) -> None:
    with contextlib.suppress(OAuthError):
        parse_token_request(authorization, oauth.FORM, body)


# -- secrets -------------------------------------------------------------------------------------------------


def test_no_secret_in_any_text() -> None:
    canary = "canary-4711"
    grants = [parse(CLIENT | {"client_secret": canary}), parse(EXCHANGE | {"subject_token": canary})]
    grants.append(parse(EXCHANGE, basic(f"etl:{canary}")))
    assert not any(canary in repr(grant) or canary in str(grant) for grant in grants)
    for form in (
        CLIENT | {"client_secret": canary, "client_id": f"/{canary}"},
        CLIENT | {"grant_type": canary},
        CLIENT | {"scope": canary + "\n"},
        EXCHANGE | {"subject_token": canary, "subject_token_type": canary},
    ):
        with pytest.raises(OAuthError) as refused:
            parse(form, basic(f"/etl:{canary}"))
        assert canary not in repr(refused.value)
        assert canary not in str(refused.value.body)
