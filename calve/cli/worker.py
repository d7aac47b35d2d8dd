"""`calve worker`."""

from __future__ import annotations

import os
import sys

import click

from calve.cli.options import settings_options, uri_option
from calve.settings import Settings


@click.command()
@uri_option
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting; may be repeated.")
@settings_options(
    "spark_master",
    "spark_memory",
    "worker_slots",
    "s3_endpoint",
    "s3_region",
    "s3_access_key_id",
    "s3_path_style",
    spark_master="--master",
)
def command(settings: Settings, uri: str | None, conf: tuple[str, ...]) -> None:
    """Run a Spark worker for a server.

    It leases batches of changes from the server and writes them to the tables. If the server requires tokens,
    set CALVE_WORKER_CREDENTIAL=NAME:SECRET to a principal with the role writer. Set secrets by variables:
    CALVE_S3_SECRET_ACCESS_KEY for the store.

    \b
    Example:
      calve worker --uri http://lake.example:8181 --master spark://spark.example:7077
    """
    from calve.server import spark_worker
    from calve.server.banner import address

    words = spark_worker.command(settings, uri or address(settings, settings.port))
    words += [word for pair in conf for word in ("--conf", pair)]
    environment = {**os.environ, **spark_worker.environment(settings)}
    sys.stdout.flush()
    os.execve(words[0], words, environment)  # noqa: S606 - our own interpreter, with our own module
