#!/usr/bin/env bash
# Bring PyIceberg's own tests, which `make proof` runs against Calve: .cache/pyiceberg/suite, from the source archive of
# the pinned version, and .cache/pyiceberg/venv, in which they run with the packages that they need. What is there
# already is left alone.
set -euo pipefail
cd "$(dirname "$0")/.."
export UV_SYSTEM_CERTS=true # a proxy's certificate may be known to this machine only

version="$(sed -n 's/^pyiceberg==//p' requirements.txt)"
cache=.cache/pyiceberg
needs=(
    "pyiceberg[pyarrow,pandas,s3fs,duckdb,polars,sql-sqlite,hive,pyiceberg-core]==$version"
    "pyspark[connect]"
    pytest==9.1.1 pytest-lazy-fixtures==1.4.1 pytest-mock==3.15.1 "moto[server]==5.2.5" fastavro pytz==2026.6
    protobuf==7.36.2 pandas==3.1.1
)

[ ! -e "$cache/.suite-$version" ] || exit 0
echo "fetching PyIceberg $version's tests, and packages for them (1.2 GB)"
rm -rf "$cache"
mkdir -p "$cache/unpacking"
.venv/bin/python -m pip download --quiet --no-deps --no-binary :all: --no-build-isolation --dest "$cache/unpacking" \
    "pyiceberg==$version"
tar -xzf "$cache/unpacking/pyiceberg-$version.tar.gz" -C "$cache/unpacking"
mkdir "$cache/suite"
mv "$cache/unpacking/pyiceberg-$version"/{tests,dev,pyproject.toml} "$cache/suite"
rm -r "$cache/unpacking"
.venv/bin/uv venv --quiet "$cache/venv"
.venv/bin/uv pip install --quiet --python "$cache/venv/bin/python" -c requirements.txt "${needs[@]}"
touch "$cache/.suite-$version"
