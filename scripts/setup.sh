#!/usr/bin/env bash
# Make .venv with everything in it: the pinned packages, the checks, and the command .venv/bin/calve.
# Run by `make setup`, which calls it again only when a pin or pyproject.toml has changed.
set -euo pipefail
cd "$(dirname "$0")/.."

python="${PYTHON:-python3}"
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "Calve needs Python 3.11 or newer: set PYTHON to one, for example 'make setup PYTHON=python3.11'." >&2
    exit 2
fi

progress() { echo "set-up: $*" >&2; }

if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    # Debian ships venv's own installer as a package of its own.
    "$python" -c 'import ensurepip' 2>/dev/null || scripts/debian.sh python3-venv
    progress "making .venv with $("$python" --version)"
    "$python" -m venv --clear .venv
fi

uv_pin="$(grep '^uv==' requirements-dev.txt)"
if [ "uv==$(.venv/bin/uv --version 2>/dev/null | cut -d' ' -f2)" != "$uv_pin" ]; then
    progress "fetching the installer $uv_pin"
    .venv/bin/python -m pip install --quiet "$uv_pin" || progress "uv could not be installed: going on with pip"
fi

# The pins are complete, so there is nothing to resolve.
progress "installing $(cat requirements.txt requirements-dev.txt | grep -c '==') packages, Spark (PySpark, 440 MB) among them;" \
    "the first time this takes a few minutes"
scripts/install.sh --no-deps -r requirements-dev.txt
progress "installing Calve itself, editable"
scripts/install.sh --no-deps --no-build-isolation --editable .

# What the server imports is compiled now, once, and not at its first start.
env -u PYTHONDONTWRITEBYTECODE .venv/bin/python -c 'import calve.app, calve.server.run'
