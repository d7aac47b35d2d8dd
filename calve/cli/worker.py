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
@click.option("--only", type=click.Choice(("landing", "maintenance")), help="Do only this. Default: both.")
@click.option("--ui-port", type=click.IntRange(1, 65535), help="Serve Spark's own page on this port.")
@click.option("--key-files", metavar="FOLDER", help="Folder of the key files on the executors.")
@click.option(
    "--key-files-bytes", type=click.IntRange(0), help="At most so many bytes of them. Default: 4 GiB."
)
@settings_options(
    "spark_master",
    "spark_memory",
    "worker_slots",
    "spark_driver_host",
    "spark_driver_port",
    "spark_block_manager_port",
    "spark_shuffle_partitions",
    "spark_executors_max",
    "spark_event_log_dir",
    "s3_endpoint",
    "s3_region",
    "s3_access_key_id",
    "s3_path_style",
    spark_master="--master",
)
def command(
    settings: Settings,
    uri: str | None,
    conf: tuple[str, ...],
    only: str | None,
    ui_port: int | None,
    key_files: str | None,
    key_files_bytes: int | None,
) -> None:
    """Run a Spark worker for a server.

    It leases batches of changes from the server and writes them to the tables. If the server requires tokens,
    set CALVE_WORKER_CREDENTIAL=NAME:SECRET to a principal with the role writer. Set secrets by variables:
    CALVE_S3_SECRET_ACCESS_KEY for the store.

    \b
    Example:
      calve worker --uri http://lake.example:8181 --master spark://spark.example:7077
      calve worker --only maintenance
    """
    from calve.server import spark_worker
    from calve.server.banner import address

    words = spark_worker.command(settings, uri or address(settings, settings.port))
    words += [word for pair in conf for word in ("--conf", pair)]
    given = {
        "--only": only,
        "--ui-port": ui_port,
        "--key-files": key_files,
        "--key-files-bytes": key_files_bytes,
    }
    words += [word for name, value in given.items() if value is not None for word in (name, str(value))]
    environment = {**os.environ, **spark_worker.environment(settings)}
    sys.stdout.flush()
    os.execve(words[0], words, environment)  # noqa: S606 - our own interpreter, with our own module
