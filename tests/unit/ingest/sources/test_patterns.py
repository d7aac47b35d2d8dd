"""Patterns for table names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.sources.patterns import filled, matched

NAMES = st.text("ab.", max_size=12)
PATTERNS = st.text("ab.*", max_size=8)


@given(PATTERNS, NAMES)
def test_a_pattern_matches_as_a_regular_expression_does(pattern: str, name: str) -> None:
    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name)
    assert (matched(pattern, name) is not None) == (expected is not None)


@given(PATTERNS, NAMES)
def test_what_the_stars_stand_for_gives_the_name_again(pattern: str, name: str) -> None:
    parts = matched(pattern, name)
    assert parts is None or filled(pattern, parts) == name


@pytest.mark.parametrize(
    ("pattern", "name", "to", "result"),
    [
        ("public.*", "public.orders", "shop.*", "shop.orders"),
        ("tenant_*.*", "tenant_7.orders", "tenants.*_*", "tenants.7_orders"),
        ("a.b", "a.b", "c.d", "c.d"),
        ("a.*.*", "a.b.c", "x.*", "x.b"),
    ],
)
def test_a_route_uses_what_the_stars_stand_for(pattern: str, name: str, to: str, result: str) -> None:
    parts = matched(pattern, name)
    assert parts is not None
    assert filled(to, parts) == result
