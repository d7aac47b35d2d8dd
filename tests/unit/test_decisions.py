"""Each decision record has a number of its own and is in the index."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parents[2] / "docs" / "decisions"


def test_each_record_has_a_number_of_its_own_and_is_in_the_index() -> None:
    records = sorted(FOLDER.glob("[0-9]*.md"))
    index = (FOLDER / "README.md").read_text()
    assert len({record.name[:4] for record in records}) == len(records)
    for record in records:
        title = record.read_text().splitlines()[0].removeprefix("# ")
        assert f"| {record.name[:4]} | [{title}]({record.name}) |" in index
