"""Old metadata files are deleted after a publish, and the past can be read without them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.rest import Rest
from tests.harness.stacks import STACKS, Stack, Stacks

PUBLISHES = 100
KEPT = 20
PROPERTIES = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": str(KEPT),
}
REBUILT_ALIKE = ("properties", "snapshots", "snapshot-log", "refs", "current-snapshot-id", "last-updated-ms")


@pytest.fixture(params=STACKS)
def uncached(request: pytest.FixtureRequest, stacks: Stacks, tmp_path: Path) -> Iterator[Stack]:
    """A server that keeps no document in memory, so that it needs files or the history."""
    settings = {"CALVE_DOCUMENT_CACHE_BYTES_MAX": "0"}
    with stacks.started(request.param, tmp_path, settings) as stack:
        yield stack


def path_of(stacks: Stacks, location: str) -> Path:
    return stacks.s3.path(location) if location.startswith("s3:") else Path(location.removeprefix("file://"))


def test_a_publish_deletes_old_metadata_files_and_every_past_number_can_be_read(
    uncached: Stack, stacks: Stacks
) -> None:
    rest = Rest(uncached.url)
    namespace = rest.fresh_namespace()
    rest.create(namespace, "t", properties=PROPERTIES)
    then = {}
    for number in range(PUBLISHES):
        inside = rest.open_transaction(f"publish-{number}")
        inside.append(namespace, "t")
        if number % 10 == 0:
            inside.append(namespace, "t")  # a publish writes one file, however many commits it has
        answer = rest.publish(f"publish-{number}")
        assert answer.status_code == 200, answer.text
        if number % 10 == 0:
            then[answer.json()["number"]] = rest.load(namespace, "t")
    newest = rest.load(namespace, "t")
    files = list(path_of(stacks, newest["metadata-location"]).parent.glob("*.metadata.json*"))
    assert len(files) == KEPT + 1
    locations = [entry["metadata-file"] for entry in newest["metadata"]["metadata-log"]]
    assert {path_of(stacks, location) for location in (*locations, newest["metadata-location"])} == set(files)
    for number, expected in then.items():
        found = rest.at(f"main@{number}").load(namespace, "t")
        assert found["metadata-location"] == expected["metadata-location"]
        assert {key: found["metadata"][key] for key in REBUILT_ALIKE} == {
            key: expected["metadata"][key] for key in REBUILT_ALIKE
        }


def test_a_table_that_keeps_its_files_keeps_them_when_a_transaction_is_published(
    stack: Stack, stacks: Stacks
) -> None:
    rest = Rest(stack.url)
    namespace = rest.fresh_namespace()
    kept = {"write.metadata.previous-versions-max": "1"}
    locations = [rest.create(namespace, "t", properties=kept)["metadata-location"]]
    for number in range(4):
        name = f"{namespace}-{number}"
        rest.open_transaction(name).append(namespace, "t")
        assert rest.publish(name).status_code == 200
        locations.append(rest.load(namespace, "t")["metadata-location"])
    assert [path_of(stacks, location).exists() for location in locations] == [True] * 5
