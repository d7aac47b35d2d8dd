"""No location leaves its warehouse: each hostile text, by each way in, is refused before storage is asked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import httpx
import pytest

from tests.security.answers import is_error
from tests.security.entry_points import ENTRY_POINTS, OTHER_PROPERTIES, EntryPoint, Lake
from tests.security.hostile_places import Places, elsewhere, outside, some_outside, unfit
from tests.security.recorded_server import RecordedServer

ROOTS = {"files": "file:///lake/wh", "s3": "s3://lake/wh"}


@pytest.fixture(scope="module", params=ROOTS)
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    folder = tmp_path_factory.mktemp("recorded")
    with (
        RecordedServer.started(folder, ROOTS[request.param]) as server,
        contextlib.closing(Lake(server)) as lake,
    ):
        yield lake


def test_the_matrix_is_as_large_as_it_should_be() -> None:
    assert len(outside("file:///lake/wh")) >= 40
    assert len(ENTRY_POINTS) >= 12


@pytest.mark.parametrize("way", [*ENTRY_POINTS, *OTHER_PROPERTIES], ids=lambda way: way.label)
def test_a_place_inside_is_taken(lake: Lake, way: EntryPoint) -> None:
    answer = way.send(lake, lake.good())
    assert answer.is_success, answer.text


@pytest.mark.parametrize("way", ENTRY_POINTS, ids=lambda way: way.label)
def test_a_place_outside_is_refused_before_storage_is_asked(lake: Lake, way: EntryPoint) -> None:
    places = outside(lake.root) if lake.root.startswith("file") else elsewhere(lake.root)
    _assert_refused(lake, way, places | ({} if way.is_file else unfit(lake.root)))


@pytest.mark.parametrize("way", OTHER_PROPERTIES, ids=lambda way: way.label)
def test_every_property_that_names_a_path_is_looked_at(lake: Lake, way: EntryPoint) -> None:
    _assert_refused(lake, way, some_outside(lake.root))


def _assert_refused(lake: Lake, way: EntryPoint, places: Places) -> None:
    head, staged = lake.rest.head(), _touched(lake)
    wrong = []
    for label, place in places.items():
        mark = lake.server.files.mark()
        answer = way.send(lake, place)
        asked = lake.server.files.calls_since(mark)
        if way.reads and asked and asked[0][0] == "read" and "/planted/" in asked[0][1]:
            del asked[0]  # the file itself lies in the warehouse and may be looked into, once
        if not _is_refusal(answer) or asked:
            wrong.append((label, place, answer.status_code, answer.text[:200], asked))
    assert not wrong
    assert (lake.rest.head(), _touched(lake)) == (head, staged)  # nothing entered the history


def _is_refusal(answer: httpx.Response) -> bool:
    return answer.status_code == 400 and is_error(answer)


def _touched(lake: Lake) -> object:
    name = lake.inside.prefix.partition("~")[2]
    return lake.rest.lake("GET", f"main/transactions/{name}").json()["touched"]
