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

if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    # Debian ships venv's own installer as a package of its own.
    "$python" -c 'import ensurepip' 2>/dev/null || scripts/debian.sh python3-venv
    "$python" -m venv --clear .venv
fi

# uv resolves and unpacks several times faster than pip; without it pip does the same work.
uv_pin="$(grep '^uv==' requirements-dev.txt)"
if [ "uv==$(.venv/bin/uv --version 2>/dev/null | cut -d' ' -f2)" != "$uv_pin" ]; then
    .venv/bin/python -m pip install --quiet "$uv_pin" || echo "uv could not be installed: going on with pip" >&2
fi

install() {
    if [ -x .venv/bin/uv ] && .venv/bin/uv pip install --quiet --python .venv/bin/python "$@"; then
        return
    fi
    .venv/bin/python -m pip install --quiet "$@"
}

# The pins are complete, so there is nothing to resolve.
install --no-deps -r requirements-dev.txt
install --no-deps --no-build-isolation --editable .

# The Spark worker beside the server needs Java and two jars. Without them the server still serves, and says so.
if ! .venv/bin/python -m spark_jobs.java >/dev/null 2>&1; then
    install "$(.venv/bin/python -c 'from spark_jobs.java import BROUGHT; print(BROUGHT)')" ||
        .venv/bin/python -m spark_jobs.java || true
fi
.venv/bin/python -m spark_jobs.jars >/dev/null || echo "The Spark worker will not run without its jars." >&2

# What the server imports is compiled now, once, and not at its first start.
env -u PYTHONDONTWRITEBYTECODE .venv/bin/python -c 'import calve.app, calve.serve.run, calve.serve.worker'
