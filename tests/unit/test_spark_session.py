"""What a Spark session is told about the catalog."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs import jars, java
from spark_jobs.session import S3Options, SparkUnavailable, catalog_settings, session_settings, spark_session

URI = "http://127.0.0.1:8181"


def test_a_catalog_is_reached_by_rest_and_never_cached() -> None:
    assert catalog_settings("lake", URI, warehouse="main@7") == {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "rest",
        "spark.sql.catalog.lake.uri": URI,
        "spark.sql.catalog.lake.warehouse": "main@7",
        "spark.sql.catalog.lake.cache-enabled": "false",
        "spark.sql.catalog.lake.rest-catalog-purge": "true",
    }


def test_an_object_store_brings_its_own_file_io() -> None:
    s3 = S3Options("http://127.0.0.1:9000", "us-east-1", "key", "secret")
    settings = catalog_settings("lake", URI, s3=s3, token="t")
    assert settings["spark.sql.catalog.lake.io-impl"] == "org.apache.iceberg.aws.s3.S3FileIO"
    assert settings["spark.sql.catalog.lake.s3.path-style-access"] == "true"
    assert settings["spark.sql.catalog.lake.client.region"] == "us-east-1"
    assert settings["spark.sql.catalog.lake.token"] == "t"
    assert "secret" not in repr(s3)


def test_the_session_takes_its_jars_from_the_disk() -> None:
    settings = session_settings()
    assert settings["spark.jars"].split(",") == [str(jars.folder() / jar.file) for jar in jars.JARS]
    assert settings["spark.sql.session.timeZone"] == "UTC"
    assert "spark.jars.packages" not in settings


def test_without_java_the_message_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> Path:
        raise java.NoJava

    monkeypatch.setattr(java, "home", none)
    with pytest.raises(SparkUnavailable, match="Java 17 or 21 missing, run `make setup`"):
        spark_session(URI)
