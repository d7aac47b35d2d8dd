"""The text of a grown document: the same document as if all of it had been encoded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.fast import reads
from catalog.fast.reads import DocumentCache, Encoded, encode
from catalog.store.database import pack, unpack

ENTRY = st.fixed_dictionaries({"snapshot-id": st.integers(0, 2**53), "text": st.text(max_size=5)})
REST = st.dictionaries(st.text(max_size=5), st.integers(0, 9) | st.text(max_size=5), max_size=3)


@pytest.fixture(autouse=True, scope="module")
def short_lists_count() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reads, "ENTRIES_MIN", 2)
        patched.setattr(reads, "FRAME_BYTES", 32)
        yield


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Versions of a document: lists grow, are cut, or have another last entry."""
    found: list[dict[str, Any]] = []
    lists: dict[str, list[Any]] = {"snapshots": [], "snapshot-log": []}
    for _ in range(draw(st.integers(1, 6))):
        for name, entries in lists.items():
            kept = entries[draw(st.sampled_from([0, 0, 0, 1])) : len(entries) - draw(st.integers(0, 1))]
            lists[name] = kept + draw(st.lists(ENTRY, max_size=4))
        order = draw(st.permutations(["snapshots", "rest", "snapshot-log"]))
        rest = draw(REST)
        version: dict[str, Any] = {}
        for part in order:
            version |= rest if part == "rest" else {part: lists[part]}
        found.append(version)
    return found


@given(histories())
def test_a_document_is_the_same_however_it_was_encoded(versions: list[dict[str, Any]]) -> None:
    before = None
    for version in versions:
        encoded = encode(version, before)
        assert orjson.loads(encoded.text) == version
        assert unpack(encoded.packed()) == encoded.text
        assert all(orjson.loads(b"[%s]" % encoded.text[one.start : one.end]) == one.entries
                   for one in encoded.lists.values())  # fmt: skip
        before = encoded


def test_what_did_not_change_is_copied() -> None:
    shared = [{"snapshot-id": number} for number in range(4)]
    before = encode({"snapshots": shared, "name": "a"})
    marked = Encoded(before.text.replace(b"2", b"7"), before.lists)
    after = encode({"snapshots": [*shared, {"snapshot-id": 4}], "name": "b"}, marked)
    assert [one["snapshot-id"] for one in orjson.loads(after.text)["snapshots"]] == [0, 1, 7, 3, 4]


def test_frames_are_compressed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = [{"snapshot-id": number} for number in range(100)]
    compressed: list[int] = []

    def counting(text: bytes) -> bytes:
        compressed.append(len(text))
        return pack(text)

    monkeypatch.setattr(reads, "pack", counting)
    before = encode({"snapshots": shared, "snapshot-log": shared, "name": "a"})
    compressed.clear()
    longer, other = [*shared, {"snapshot-id": 100}], [*shared[:-1], {"snapshot-id": 101}]
    after = encode({"snapshots": longer, "snapshot-log": other, "name": "b"}, before)
    assert orjson.loads(after.text) == {"snapshots": longer, "snapshot-log": other, "name": "b"}
    assert unpack(after.packed()) == after.text
    assert sum(compressed) < 200  # of more than 3,000 bytes


@given(histories())
def test_kept_documents_are_those_that_were_encoded(versions: list[dict[str, Any]]) -> None:
    documents = DocumentCache(10_000_000)
    follows = None
    for number, version in enumerate(versions):
        key = ("uuid", str(number))
        text = documents.encode(key, version, follows)
        assert orjson.loads(text) == version
        assert documents.parsed(key, b"null") is version
        follows = key


def test_versions_that_share_their_parts_count_once() -> None:
    snapshots = [{"snapshot-id": number} for number in range(100)]
    text_bytes = len(orjson.dumps({"snapshots": snapshots}))
    documents = DocumentCache(text_bytes * 6)
    documents.put_text(("other", "1"), b"x")
    for number in range(20):
        snapshots = [*snapshots[:-1], {"snapshot-id": 100 + number}]
        documents.encode(("uuid", str(number)), {"snapshots": snapshots}, ("uuid", str(number - 1)))
    assert documents.text(("other", "1")) == b"x"
    assert documents.get(("parsed", ("uuid", "0"))) is not None
