"""Tokens of the change feed."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.errors import Invalid
from query.feed.cursors import ChangeIndex, Cursor, cursor_of, is_token

NUMBERS = st.integers(0, 2**62)
CHANGE_INDICES = st.none() | st.builds(ChangeIndex, st.text(min_size=1, max_size=50), st.integers(1, 2**62))
CURSORS = st.builds(Cursor, NUMBERS, NUMBERS, NUMBERS, CHANGE_INDICES, st.booleans())


@given(CURSORS)
def test_a_token_stands_for_its_cursor(cursor: Cursor) -> None:
    assert cursor_of(cursor.token) == cursor
    assert is_token(cursor.token)


@given(st.text(max_size=100) | st.binary(max_size=60).map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_any_other_text_is_refused_or_a_cursor(text: str) -> None:
    try:
        found = cursor_of(text)
    except Invalid:
        return
    assert cursor_of(found.token) == found


@pytest.mark.parametrize(
    "text", ["", "17", "2026-11-15", "main:7", "now", "5 minutes ago", "WzIsMSwxLDFd", "A" * 5000]
)
def test_moments_are_no_tokens(text: str) -> None:
    assert not is_token(text)
