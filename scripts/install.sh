#!/usr/bin/env bash
# Install packages into .venv: the arguments are those of `pip install`. On a terminal the progress is shown.
set -euo pipefail
cd "$(dirname "$0")/.."
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
export UV_SYSTEM_CERTS=true # a proxy's certificate may be known to this machine only

quiet=()
[ -t 2 ] || quiet=(--quiet)

# uv resolves and unpacks several times faster than pip; without it pip does the same work.
if [ -x .venv/bin/uv ] && .venv/bin/uv pip install "${quiet[@]}" --python .venv/bin/python "$@"; then
    exit
fi
.venv/bin/python -m pip install "${quiet[@]}" "$@"
