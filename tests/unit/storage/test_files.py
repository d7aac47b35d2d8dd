"""What engines are told about storage, and what they make of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO

from catalog.errors import Invalid
from catalog.storage.files import StorageFiles
from catalog.storage.s3 import S3Settings

KEYS = S3Settings(access_key_id="AKIA-CANARY", secret_access_key="secret-canary")


def test_engines_need_nothing_for_files() -> None:
    assert StorageFiles().client_properties("file:///srv/lake") == {}


def test_engines_are_told_where_the_store_is() -> None:
    files = StorageFiles(replace(KEYS, endpoint="http://127.0.0.1:9000", region="eu-north-1"))
    assert files.client_properties("s3://lake/warehouse") == {
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": "http://127.0.0.1:9000",
        "s3.path-style-access": "true",
        "s3.region": "eu-north-1",
        "client.region": "eu-north-1",
    }


def test_on_aws_the_region_is_enough() -> None:
    properties = StorageFiles(S3Settings(path_style=False)).client_properties("s3://lake")
    assert properties["s3.path-style-access"] == "false"
    assert "s3.endpoint" not in properties
    assert "s3.force-virtual-addressing" not in properties


def test_virtual_hosts_on_an_endpoint_are_told_in_both_dialects() -> None:
    files = StorageFiles(S3Settings(endpoint="https://s3.example.org", path_style=False))
    properties = files.client_properties("s3://lake")
    assert properties["s3.path-style-access"] == "false"
    assert properties["s3.force-virtual-addressing"] == "true"


def test_engines_are_never_told_a_key() -> None:
    for path_style in (True, False):
        settings = replace(KEYS, endpoint="https://s3.example.org", path_style=path_style)
        assert "canary" not in str(StorageFiles(settings).client_properties("s3://lake")).lower()


def test_pyiceberg_is_not_disturbed_by_the_java_class() -> None:
    files = StorageFiles(S3Settings(endpoint="http://127.0.0.1:9000"))
    io = load_file_io(files.client_properties("s3://lake"), "s3://lake/t")
    assert isinstance(io, PyArrowFileIO)


def test_no_other_scheme_has_properties() -> None:
    with pytest.raises(Invalid):
        StorageFiles().client_properties("gs://lake")
