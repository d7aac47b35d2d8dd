"""Rows of files and data frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

from calve.client.files import rows_of_data

ROWS = [{"id": 1, "name": "Ada"}, {"id": 2, "name": None}]


def rows(path: Path, text: str) -> list[dict[str, Any]]:
    path.write_text(text, encoding="utf-8")
    return list(rows_of_data(path))


def test_csv_columns_have_one_type_each(tmp_path: Path) -> None:
    text = "id,price,ok,code,name,mixed\n1,2.5,true,007,Ada,1\n-2,3,FALSE,12,,x\n\n,1e3,,,Bö,\n"
    assert rows(tmp_path / "a.csv", text) == [
        {"id": 1, "price": 2.5, "ok": True, "code": "007", "name": "Ada", "mixed": "1"},
        {"id": -2, "price": 3.0, "ok": False, "code": "12", "name": None, "mixed": "x"},
        {"id": None, "price": 1000.0, "ok": None, "code": None, "name": "Bö", "mixed": None},
    ]


def test_csv_keeps_what_a_number_would_lose(tmp_path: Path) -> None:
    text = "phone,id,price\n+4912,12345678901234567890,0.1234567890123456789\n"
    assert rows(tmp_path / "a.csv", text) == [
        {"phone": "+4912", "id": "12345678901234567890", "price": "0.1234567890123456789"}
    ]


def test_csv_with_a_wrong_line(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="line 3: 1 fields for 2 columns"):
        rows(tmp_path / "a.csv", "a,b\n1,2\n3\n")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '[{"id": 1, "name": "Ada"}, {"id": 2, "name": null}]'),
        ("a.json", '[\n{"id": 1, "name": "Ada"},\n{"id": 2,\n "name": null}\n]\n'),
        ("a.ndjson", '{"id": 1, "name": "Ada"}\n\n{"id": 2, "name": null}\n'),
        ("a.jsonl", '{"id": 1, "name": "Ada"}\n{"id": 2, "name": null}'),
    ],
)
def test_json(tmp_path: Path, name: str, text: str) -> None:
    assert rows(tmp_path / name, text) == ROWS


def test_one_json_object(tmp_path: Path) -> None:
    assert rows(tmp_path / "a.json", '{\n  "id": 1\n}\n') == [{"id": 1}]
    assert rows(tmp_path / "a.json", "") == []


@pytest.mark.parametrize("text", ["[1]", '{"id": 1}\n{"id": \n', '{"id": 1}\n7\n', "nonsense"])
def test_json_that_holds_no_rows(tmp_path: Path, text: str) -> None:
    with pytest.raises((ValueError, TypeError), match=r"a\.json"):
        rows(tmp_path / "a.json", text)


def test_parquet(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet")
    assert list(rows_of_data(tmp_path / "a.parquet")) == ROWS


def test_an_unknown_ending() -> None:
    with pytest.raises(ValueError, match=r"\.parquet"):
        rows_of_data("orders.xlsx")


def test_data_frames_and_tables() -> None:
    for data in (pl.DataFrame(ROWS), pa.Table.from_pylist(ROWS), pd.DataFrame(ROWS), ROWS):
        assert list(rows_of_data(data)) == ROWS
    with pytest.raises(TypeError, match="int"):
        rows_of_data(7)


def test_missing_values_of_pandas_are_null() -> None:
    frame = pd.DataFrame({"x": [1.5, None], "t": pd.to_datetime(["2026-11-15", None])})
    assert list(rows_of_data(frame))[1] == {"x": None, "t": None}
