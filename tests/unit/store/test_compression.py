"""Documents in a row: what is packed is unpacked again."""

from __future__ import annotations

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from catalog.store import database
from catalog.store.database import pack, unpack


@given(st.lists(st.binary(max_size=60), min_size=1, max_size=6), st.integers(1, 99))
def test_frames_that_follow_each_other_are_unpacked_as_one_document(
    parts: list[bytes], step_bytes: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(database, "UNPACK_BYTES", step_bytes)
        assert unpack(b"".join(map(pack, parts))) == b"".join(parts)


def test_a_document_that_is_cut_off_is_no_document() -> None:
    packed = pack(bytes(range(200)))
    for length in range(len(packed)):
        with pytest.raises(zstandard.ZstdError):
            unpack(packed[:length])
