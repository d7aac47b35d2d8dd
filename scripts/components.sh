#!/usr/bin/env bash
# Bring the real components that the tests run against: PostgreSQL, an S3 server, Java with the jars for Spark,
# promtool, wrk, iproute2. What is there already is left alone, so a second run takes a moment. Needs Go for the S3 server.
set -euo pipefail
cd "$(dirname "$0")/.."

versitygw_version=v1.8.0

packages=()
wants() { # wants PACKAGE COMMAND...: the package is needed unless the command succeeds
    local package="$1"
    shift
    "$@" >/dev/null 2>&1 || packages+=("$package")
}
has_java() { java -version 2>&1 | grep -Eq 'version "(17|21)'; } # Spark 4.1 runs on these
has_postgres() { command -v postgres || compgen -G '/usr/lib/postgresql/*/bin/postgres'; }

wants postgresql-15 has_postgres
wants prometheus command -v promtool
wants wrk command -v wrk
wants iproute2 command -v ip
wants openjdk-17-jdk-headless has_java
wants maven command -v mvn
if [ "${#packages[@]}" -gt 0 ]; then
    scripts/debian.sh "${packages[@]}"
fi

mkdir -p .cache/bin
if [ ! -x .cache/bin/versitygw ] || [ ! -e ".cache/bin/.versitygw-$versitygw_version" ]; then
    if ! command -v go >/dev/null; then
        echo "The S3 server of the tests is built with Go 1.24 or newer: please install it." >&2
        exit 1
    fi
    echo "building versitygw $versitygw_version"
    CGO_ENABLED=0 GOBIN="$PWD/.cache/bin" go install \
        "github.com/versity/versitygw/cmd/versitygw@$versitygw_version"
    rm -f .cache/bin/.versitygw-*
    touch ".cache/bin/.versitygw-$versitygw_version"
fi

CALVE_JARS="$PWD/.cache/jars" .venv/bin/python -m spark_jobs.jars >/dev/null
