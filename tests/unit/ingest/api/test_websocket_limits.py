"""Rates and counts of connections."""

from __future__ import annotations

import pytest

from ingest.api.websocket_limits import Connections, MessageLimit, subnet_of
from ingest.settings import ApiSettings


def test_messages_of_a_second_and_a_burst() -> None:
    limit = MessageLimit(ApiSettings(messages_per_s=100, messages_burst=50), 0.0)
    assert sum(limit.take(0.5) for _ in range(300)) == 150
    assert not limit.take(0.55)
    assert 0 < limit.wait_ms(0.55) <= 451
    # A new second has its own hundred; of the burst, ten come back each second.
    assert sum(limit.take(1.5) for _ in range(300)) == 110


def test_how_the_limit_stands() -> None:
    limit = MessageLimit(ApiSettings(messages_per_s=3), 10.0)
    limit.take(10.0)
    rate = limit.rate(10.0, 1000.5)
    assert rate.as_json() == {"limit": 3, "remaining": 2, "resetAt": 1002}
    assert dict(rate.as_headers())[b"x-ratelimit-remaining"] == b"2"


def settings(**changes: int) -> ApiSettings:
    wide = {
        "connections_per_s": 1000,
        "connections_per_address_max": 1000,
        "connections_per_source_max": 1000,
    }
    return ApiSettings(**{**wide, **changes})  # type: ignore[arg-type]


def test_new_connections_of_a_second() -> None:
    connections = Connections(settings(connections_per_s=2))
    assert [connections.enter("a", None, 5.0) for _ in range(3)] == [None, None, "rate_limited"]
    assert connections.enter("a", None, 6.0) is None
    assert (connections.open, connections.peak) == (3, 3)


def test_connections_of_an_address_come_free_again() -> None:
    connections = Connections(settings(connections_per_address_max=2))
    assert [connections.enter("10.0.0.1", None, 0) for _ in range(3)] == [None, None, "ip_limit"]
    assert connections.enter("10.0.0.2", None, 0) is None
    connections.leave("10.0.0.1", None)
    assert connections.enter("10.0.0.1", None, 0) is None


def test_connections_of_a_subnet() -> None:
    connections = Connections(settings(connections_per_address_max=3, connections_per_subnet_max=4))
    entered = [connections.enter(f"10.0.0.{number}", None, 0) for number in range(6)]
    assert entered == [None] * 4 + ["ip_limit"] * 2
    assert connections.enter("10.0.1.1", None, 0) is None


def test_a_wide_limit_of_an_address_is_not_undone_by_the_subnets() -> None:
    connections = Connections(settings(connections_per_address_max=500, connections_per_subnet_max=100))
    assert [connections.enter("127.0.0.1", None, 0) for _ in range(500)] == [None] * 500


def test_connections_of_a_source() -> None:
    connections = Connections(settings(connections_per_source_max=1))
    assert connections.enter("a", "s", 0) is None
    assert connections.enter("a", "s", 0) == "connection_limit"
    assert connections.open == 1
    connections.leave("a", "s")
    assert connections.sources == 0
    assert connections.join("s")
    assert not connections.join("s")


def test_connections_in_all() -> None:
    connections = Connections(settings(connections_max=1))
    assert connections.enter("a", None, 0) is None
    assert connections.enter("b", None, 0) == "connection_limit"


@pytest.mark.parametrize(
    ("address", "same"),
    [("10.1.2.3", "10.1.2.250"), ("2001:db8::1", "2001:db8::ffff:1"), ("unix", "unix")],
)
def test_subnets(address: str, same: str) -> None:
    assert subnet_of(address) == subnet_of(same)


def test_other_subnets() -> None:
    assert len({subnet_of(a) for a in ("10.1.2.3", "10.1.3.3", "2001:db8::1", "2001:db8:1::1")}) == 4
