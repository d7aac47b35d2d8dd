"""What the server prints once it listens: three things to try next, ready to paste."""

from __future__ import annotations

from calve import __version__
from calve.settings import Settings


def address(settings: Settings, port: int) -> str:
    """Where clients reach the server, as far as it knows."""
    if settings.base_url is not None:
        return settings.base_url
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def hints(settings: Settings, port: int) -> str:
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
        first = "Every caller shows a token; `calve principal create NAME` makes an ID and a SECRET.\n\n"
    parts = "\n\n".join(
        f"{name}\n{_indented(text)}" for name, text in (("curl", curl), ("DuckDB", duckdb), ("Spark", spark))
    )
    return f"Calve {__version__} listens on {uri}\n\n{first}Three things to try next:\n\n{parts}\n"


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
