"""Reads metadata documents with Iceberg's Java parsers, in one JVM for all of them.

`java_reading(documents, work)` gives for each document what Java wrote back after parsing it, and for those
that Java refuses its words. `not_as_meant` compares: all that Java understood must be what the document says.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tests.contract.rck import maven

TIMEOUT_S = 300
_TWO_SPELLINGS = re.compile(r"decimal\(.*\)|[0-9A-Fa-f]+").fullmatch


@dataclass(frozen=True, slots=True)
class Reading:
    name: str
    document: dict[str, Any]
    java: dict[str, Any] | None
    refusal: str | None


def java_reading(documents: Iterable[tuple[str, dict[str, Any]]], work: Path) -> list[Reading]:
    folder_in, folder_out = work / "in", work / "out"
    folder_in.mkdir(parents=True)
    folder_out.mkdir()
    written: dict[str, tuple[str, dict[str, Any]]] = {}
    for number, (name, document) in enumerate(documents):
        file = f"{number:06}.{'view' if 'view-uuid' in document else 'table'}.json"
        (folder_in / file).write_bytes(orjson.dumps(document))
        written[file] = name, document
    refusals = _parse(folder_in, folder_out, maven.class_path(work / "maven"), len(written))
    return [
        Reading(
            name,
            document,
            None if file in refusals else orjson.loads((folder_out / file).read_bytes()),
            refusals.get(file),
        )
        for file, (name, document) in written.items()
    ]


def _parse(folder_in: Path, folder_out: Path, class_path: str, count: int) -> dict[str, str]:
    ended = subprocess.run(
        ["java", "-cp", class_path, "calve.ParseMetadata", str(folder_in), str(folder_out)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    lines = ended.stdout.splitlines()
    refused = [line.removeprefix("REFUSED ") for line in lines if line.startswith("REFUSED ")]
    if not lines or lines[-1] != f"READ {count - len(refused)}":
        raise RuntimeError(f"the parser ended with {ended.returncode}: {ended.stderr[-3000:]}")
    return dict(line.split(": ", 1) for line in refused)


def not_as_meant(java: Any, document: Any, path: str = "$") -> Iterator[str]:
    """Where Java's reading says something else than the document.

    Java writes what it knows, so the document may hold more; and it writes some optional things out that a
    document may leave away, but then they are empty.
    """
    if isinstance(java, dict) and isinstance(document, dict):
        for key, value in java.items():
            if key in document:
                yield from not_as_meant(value, document[key], f"{path}.{key}")
            elif not _is_empty(value):
                yield f"{path}.{key}: Java reads {_short(value)}, the document has nothing"
    elif isinstance(java, list) and isinstance(document, list) and len(java) == len(document):
        for index, (one, other) in enumerate(zip(java, document, strict=True)):
            yield from not_as_meant(one, other, f"{path}[{index}]")
    elif _canonical(java) != _canonical(document):
        yield f"{path}: Java reads {_short(java)}, the document says {_short(document)}"


def _is_empty(value: Any) -> bool:
    return value in (None, [], {}, -1, False)


def _canonical(value: Any) -> Any:
    """Some values have two spellings: decimal(9,2) and decimal(9, 2), hex digits in either case."""
    return value.replace(" ", "").lower() if isinstance(value, str) and _TWO_SPELLINGS(value) else value


def _short(value: Any) -> str:
    return str(value)[:200]
