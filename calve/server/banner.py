"""What the server prints when it listens: its address, whether a Spark worker runs, three things to try."""

from __future__ import annotations

import json
import logging
import threading
import urllib.error
import urllib.request

from calve import __version__
from calve.client.calls import DEFAULT_URL
from calve.settings import Settings

READY_TIMEOUT_S = 60

_log = logging.getLogger(__name__)


def address(settings: Settings, port: int) -> str:
    """The address under which clients reach the server."""
    if settings.base_url is not None:
        return settings.base_url
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def worker_line(settings: Settings, lacking: str | None) -> str:
    """Whether changes will land; `lacking` is what the worker needs and this machine does not have."""
    if not settings.worker:
        return "Spark worker: none beside this server (worker=no); start one with `calve worker`."
    if lacking is not None:
        return f"Spark worker not running: {lacking}. Changes are accepted and kept until it runs."
    return "Spark worker: starting; the first rows can land in about 10 seconds."


def hints(settings: Settings, port: int, lacking: str | None = None) -> str:
    """The block for stdout."""
    from spark_jobs.jars import AWS_BUNDLE, ICEBERG_RUNTIME

    uri = address(settings, port)
    jars = [ICEBERG_RUNTIME.coordinates]
    if settings.warehouse_root.startswith("s3://"):
        jars.append(AWS_BUNDLE.coordinates)
    spark = _spark(uri, ",".join(jars))
    if settings.auth == "open":
        curl = f"curl '{uri}/v1/config?warehouse=main'"
        duckdb = _duckdb(
            f"ATTACH 'main' AS lake (TYPE iceberg, ENDPOINT '{uri}', AUTHORIZATION_TYPE 'none');"
        )
        first = ""
    else:
        curl = f"curl -H 'Authorization: Bearer TOKEN' '{uri}/v1/config?warehouse=main'"
        duckdb = _duckdb(
            f"CREATE SECRET calve (TYPE iceberg, CLIENT_ID 'ID', CLIENT_SECRET 'SECRET', "
            f"OAUTH2_SERVER_URI '{uri}/v1/oauth/tokens');\n"
            f"ATTACH 'main' AS lake (TYPE iceberg, SECRET calve, ENDPOINT '{uri}');"
        )
        spark += " \\\n  --conf spark.sql.catalog.lake.credential=ID:SECRET"
        first = (
            "Every caller needs a token; `calve principal create NAME --role writer` makes an ID and a SECRET"
            " and shows how to use them.\n\n"
        )
    parts = "\n\n".join(
        f"{name}\n{_indented(text)}" for name, text in (("curl", curl), ("DuckDB", duckdb), ("Spark", spark))
    )
    head = f"Calve {__version__} listens on {uri}\n{worker_line(settings, lacking)}\n"
    words = "demo" if uri == DEFAULT_URL else f"demo --uri {uri}"
    demo = f"Watch changes become rows: `calve {words}` in another shell (`.venv/bin/calve` in a clone).\n"
    return f"{head}\n{first}{demo}\nThree things to try next:\n\n{parts}\n"


def warn_if_not_ready(uri: str) -> None:
    """Log what `/ready` reports as missing. This runs in a thread, because the server must answer the
    request.
    """
    threading.Thread(target=_warn_if_not_ready, args=(uri,), name="first-ready", daemon=True).start()


def _warn_if_not_ready(uri: str) -> None:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        direct.open(f"{uri}/ready", timeout=READY_TIMEOUT_S).close()
    except urllib.error.HTTPError as error:
        checks = json.loads(error.read())["checks"]
        for name, state in checks.items():
            if state != "ok":
                _log.error("not ready: %s: %s", name, state)
    except OSError as error:
        _log.warning("the server did not answer its own first question for /ready: %s", error)


def _duckdb(attach: str) -> str:
    return f"INSTALL iceberg; LOAD iceberg;\n{attach}\nSHOW ALL TABLES;"


def _spark(uri: str, packages: str) -> str:
    catalog = "spark.sql.catalog.lake"
    return " \\\n".join(
        (
            f"spark-sql --packages {packages}",
            f"  --conf {catalog}=org.apache.iceberg.spark.SparkCatalog",
            f"  --conf {catalog}.type=rest",
            f"  --conf {catalog}.uri={uri}",
            f"  --conf {catalog}.warehouse=main",
            f"  --conf {catalog}.cache-enabled=false",
            f"  --conf {catalog}.rest-catalog-purge=true",
        )
    )


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
