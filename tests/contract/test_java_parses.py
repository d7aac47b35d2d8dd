"""Iceberg's Java library reads every document that the metadata engine produces, and reads what we meant."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.contract.rck.parser import java_reading, not_as_meant
from tests.contract.rck.view_documents import produced_view_documents
from tests.harness.documents import produced_documents


@pytest.mark.timeout(900)  # the first run on a machine fetches the jars
def test_java_reads_every_document_as_it_was_meant(tmp_path: Path) -> None:
    documents = itertools.chain(produced_documents(), produced_view_documents())
    readings = java_reading(documents, tmp_path)
    problems = []
    for reading in readings:
        said = [reading.refusal] if reading.refusal else list(not_as_meant(reading.java, reading.document))
        problems += [f"{reading.name}: {problem[:300]}" for problem in said]
    assert readings, "no documents were produced"
    assert not problems, "\n".join(problems)
