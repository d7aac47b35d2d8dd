"""Errors of a streamed result."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from query.engine import own_error

BROKEN = "SELECT CASE WHEN range < $n THEN range ELSE error('broken on purpose') END AS a FROM range(3000000)"


def _interrupted(connection: duckdb.DuckDBPyConnection, text: str, parameters: dict[str, int]) -> Exception:
    """What a result reports whose query was interrupted, as by another thread of DuckDB that failed."""
    reader = connection.execute(text, parameters).to_arrow_reader(4096)
    reader.read_next_batch()
    connection.interrupt()
    with pytest.raises((OSError, pa.ArrowException), match="INTERRUPT") as raised:
        for _ in reader:
            pass
    error: Exception = raised.value
    return error


def test_an_interrupt_is_traced_to_the_error_of_the_query() -> None:
    parameters = {"n": 2_500_000}
    with duckdb.connect() as connection:
        error = own_error(connection, BROKEN, parameters, _interrupted(connection, BROKEN, parameters))
    assert isinstance(error, duckdb.InvalidInputException)
    assert "broken on purpose" in str(error)


def test_a_query_that_succeeds_when_it_is_tried_again() -> None:
    parameters = {"n": 3_000_000}
    with duckdb.connect() as connection:
        error = own_error(connection, BROKEN, parameters, _interrupted(connection, BROKEN, parameters))
    assert "send it again" in str(error)


def test_other_errors_stay_as_they_are() -> None:
    error = OSError("Out of Memory Error: failed to allocate data")
    with duckdb.connect() as connection:
        assert own_error(connection, "SELECT 1", None, error) is error
