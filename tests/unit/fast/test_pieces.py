"""A long document in pieces is the same document, in all of its forms, as if all of it had been encoded."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.fast import pieces, reads
from catalog.fast.pieces import IndexedSnapshots, LongDocument, encode
from catalog.metadata.document import has_snapshot
from catalog.store.database import unpack

# Equal numbers with different texts, and text that needs escapes.
VALUE = st.sampled_from([0, 1, True, 1.0, None, "", 'a"\\', "\u2028 🧊"])
ENTRY = st.fixed_dictionaries({"snapshot-id": st.integers(0, 2**53), "value": VALUE})
REST = st.dictionaries(st.text(max_size=5), VALUE, max_size=3)


@pytest.fixture(autouse=True, scope="module")
def short_lists_are_long() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reads, "LONG_SNAPSHOTS", 2)
        patched.setattr(pieces, "PIECE_ENTRIES", {"snapshots": 4, "snapshot-log": 3})
        patched.setattr(pieces, "KEPT_ENTRIES_MIN", 2)
        yield


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Versions of a document: entries are added at the end and removed anywhere."""
    found: list[dict[str, Any]] = []
    lists: dict[str, list[Any]] = {"snapshots": [], "snapshot-log": []}
    for _ in range(draw(st.integers(1, 8))):
        for name, entries in lists.items():
            removed = draw(st.sets(st.integers(0, max(0, len(entries) - 1)), max_size=3))
            kept = [entry for index, entry in enumerate(entries) if index not in removed]
            lists[name] = kept + draw(st.lists(ENTRY, max_size=9))
        rest = draw(REST)
        version: dict[str, Any] = {}
        for part in draw(st.permutations(["snapshots", "rest", "snapshot-log"])):
            version |= rest if part == "rest" else {part: lists[part]}
        found.append(version)
    return found


def _canonical(document: Any) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)


def _gunzip(data: bytes) -> bytes:
    """The text of a gzip file with one member, as Java reads it."""
    member = zlib.decompressobj(16 + zlib.MAX_WBITS)
    text = member.decompress(data)
    assert member.eof
    assert not member.unused_data
    return text


@given(histories(), st.binary(max_size=9), st.binary(max_size=9))
def test_all_forms_have_the_whole_document(
    versions: list[dict[str, Any]], before: bytes, after: bytes
) -> None:
    known = None
    for version in versions:
        text = encode(version, known)
        assert _canonical(orjson.loads(bytes(text))) == _canonical(version)
        whole = bytes(text)
        assert (len(text), b"".join(text.parts())) == (len(whole), whole)
        assert unpack(text.packed()) == whole
        assert _gunzip(b"".join(text.gzipped())) == whole
        assert _gunzip(b"".join(text.gzipped(before, after))) == before + whole + after
        known = text


def _encoded(entries: list[Any], before: LongDocument | None = None) -> LongDocument:
    return encode({"snapshots": entries, "name": "a"}, before)


def _entries(count: int) -> list[Any]:
    return [{"snapshot-id": number, "value": 1} for number in range(count)]


@pytest.mark.parametrize(
    ("removed", "pieces_kept"),
    [
        (slice(0), 25),
        (slice(99, None), 24),
        (slice(3), 24),
        (slice(40, 44), 24),
        (slice(41, 42), 24),
        (slice(50), 12),
    ],
    ids=["nothing", "last", "first", "one piece", "inside", "half"],
)
def test_pieces_of_unchanged_entries_are_used_again(removed: slice, pieces_kept: int) -> None:
    entries = _entries(101)
    before = _encoded(entries)
    after = entries.copy()
    del after[removed]
    text = _encoded([*after, {"snapshot-id": 1000}], before)
    kept = [piece for piece in text.pieces if piece.entries and piece in before.pieces]
    assert len(kept) == pieces_kept


def test_short_pieces_are_joined() -> None:
    entries = _entries(101)
    text = _encoded(entries)
    for first in range(0, 80, 4):
        entries = [entry for entry in entries if not first <= entry["snapshot-id"] < first + 3]
        text = _encoded(entries, text)
    assert min(len(piece.entries) for piece in text.pieces if piece.entries) == pieces.KEPT_ENTRIES_MIN


def test_an_equal_entry_with_another_text_is_encoded() -> None:
    entries = _entries(9)
    before = _encoded(entries)
    again = [*entries[:7], {"snapshot-id": 7, "value": True}]
    assert again == entries[:8]
    assert orjson.loads(bytes(_encoded(again, before)))["snapshots"][7]["value"] is True


@given(
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["append", "copy", "look"]), st.integers(0, 5))),
    st.integers(0, 3),
)
def test_indexed_snapshots_have_the_ids_of_their_own_list(
    steps: list[tuple[int, str, int]], count: int
) -> None:
    """Lists are copied and grow apart; some have an id that another one has elsewhere."""
    lists: list[list[Any]] = [IndexedSnapshots(_entries(count))]
    for chosen, step, id_ in steps:
        one = lists[chosen % len(lists)]
        if step == "copy":
            lists.append(one.copy())
        elif step == "append" and not has_snapshot(one, id_):
            one.append({"snapshot-id": id_})
        for other in lists if step == "look" else ():
            assert has_snapshot(other, id_) == has_snapshot(list(other), id_)
    assert all(isinstance(one, IndexedSnapshots) for one in lists)
