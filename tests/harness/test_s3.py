"""The S3 server of the harness: what the storage tests may rely on."""

from __future__ import annotations

from typing import Any

import boto3
import botocore.exceptions
import pytest

from tests.harness.s3 import S3Access, S3Server


def _client(access: S3Access, *, secret: str | None = None) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=access.endpoint,
        region_name=access.region,
        aws_access_key_id=access.access_key_id,
        aws_secret_access_key=secret or access.secret_access_key,
    )


def test_an_object_is_a_file_in_the_folder_of_its_bucket(s3: S3Server) -> None:
    bucket = s3.bucket()
    _client(s3.access).put_object(Bucket=bucket, Key="a/b.json", Body=b"{}")
    assert s3.path(f"s3://{bucket}/a/b.json").read_bytes() == b"{}"


def test_buckets_are_fresh_and_separate(s3: S3Server) -> None:
    first, second = s3.bucket(), s3.bucket()
    client = _client(s3.access)
    client.put_object(Bucket=first, Key="k", Body=b"1")
    assert "Contents" not in client.list_objects_v2(Bucket=second)


def test_a_conditional_put_refuses_to_overwrite(s3: S3Server) -> None:
    bucket, client = s3.bucket(), _client(s3.access)
    client.put_object(Bucket=bucket, Key="k", Body=b"1", IfNoneMatch="*")
    with pytest.raises(botocore.exceptions.ClientError, match="PreconditionFailed"):
        client.put_object(Bucket=bucket, Key="k", Body=b"2", IfNoneMatch="*")


def test_a_wrong_secret_is_refused(s3: S3Server) -> None:
    with pytest.raises(botocore.exceptions.ClientError, match="SignatureDoesNotMatch"):
        _client(s3.access, secret="wrong").list_objects_v2(Bucket=s3.bucket())


def test_objects_survive_a_kill(s3: S3Server) -> None:
    bucket = s3.bucket()
    _client(s3.access).put_object(Bucket=bucket, Key="k", Body=b"1")
    s3.kill()
    s3.start()
    assert _client(s3.access).get_object(Bucket=bucket, Key="k")["Body"].read() == b"1"
