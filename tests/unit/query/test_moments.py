"""`as_of` as people write it."""

from __future__ import annotations

import pytest

from catalog.errors import Invalid
from catalog.moments import AtNumber, AtTime, Now
from query.landing import mirror_name
from query.moments import AtToken, requested_moment

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, Now()),
        ("now", Now()),
        (0, AtNumber(0)),
        (1234, AtNumber(1234)),
        ("1234", AtNumber(1234)),
        (1234.0, AtNumber(1234)),
        (1_700_000_000_000, AtTime(1_700_000_000_000)),
        ("1700000000000", AtTime(1_700_000_000_000)),
        ("2023-11-14T22:13:20Z", AtTime(1_700_000_000_000)),
        ("2023-11-14T22:13:20.123456z", AtTime(1_700_000_000_123)),
        ("2023-11-14 22:13:20", AtTime(1_700_000_000_000)),
        ("2023-11-14T22:13", AtTime(1_699_999_980_000)),
        ("2023-11-15T00:13:20+02", AtTime(1_700_000_000_000)),
        ("2023-11-14T19:43:20-0230", AtTime(1_700_000_000_000)),
        ("2023-11-14", AtTime(1_699_920_000_000)),
        ("5 minutes ago", AtTime(NOW_MS - 300_000)),
        ("1 hour ago", AtTime(NOW_MS - 3_600_000)),
        ("90s ago", AtTime(NOW_MS - 90_000)),
        ("500 ms ago", AtTime(NOW_MS - 500)),
        ("2 Weeks ago", AtTime(NOW_MS - 1_209_600_000)),
        ("an hour ago", AtTime(NOW_MS - 3_600_000)),
        ("a minute ago", AtTime(NOW_MS - 60_000)),
        ("Yesterday", AtTime(NOW_MS - 86_400_000)),
        ("main:77", AtToken("main", 77)),
    ],
)
def test_moments(given: str | float | None, expected: object) -> None:
    assert requested_moment(given, NOW_MS) == expected


@pytest.mark.parametrize(
    "given",
    ["", "soon", True, 1.5, "-1", -1, "5 minutes", "2023-13-01", "2023-11-14T25:00:00Z", "main:", ":1"],
)
def test_what_is_no_moment(given: str | float) -> None:
    with pytest.raises(Invalid):
        requested_moment(given, NOW_MS)


def test_tables_beside_a_mirror_have_its_changes() -> None:
    assert mirror_name(("shop",), "orders") == ("shop", "orders")
    assert mirror_name(("shop",), "orders__changes") == ("shop", "orders")
    assert mirror_name(("a", "b"), "orders__rejects") == ("a", "b", "orders")
