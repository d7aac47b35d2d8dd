"""Python workers of Spark: what every task costs beside its work."""

from __future__ import annotations

import gc
import importlib
import sys
import zipfile
from pathlib import Path
from zipimport import zipimporter

import pytest
from pyspark.sql import SparkSession

from spark_jobs.daemon import without_archives

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # a socket of PySpark itself


def about_the_worker(_: int) -> tuple[list[str], int]:
    archives = [path for path, finder in sys.path_importer_cache.items() if isinstance(finder, zipimporter)]
    return archives, gc.get_freeze_count()


def test_a_task_reads_no_archive_again_and_collects_no_loaded_library(spark: SparkSession) -> None:
    work = spark.sparkContext.parallelize([1, 2], 2).map(about_the_worker)
    for archives, frozen in work.collect():
        assert archives == []
        assert frozen > 100_000


def test_archives_stay_where_pyspark_is_in_one(tmp_path: Path) -> None:
    archive = tmp_path / "pyspark.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name in ("pyspark", "py4j"):
            file.writestr(f"{name}/__init__.py", "")
    own = [str(tmp_path), str(archive)]
    assert without_archives(own) == own
    for name in ("pyspark", "py4j"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    importlib.invalidate_caches()
    assert without_archives(own) == [str(tmp_path)]
