#!/usr/bin/env bash
# Bring what the Spark worker needs: Java 17 or 21, and two jars. Run by every `make setup`; what is there already
# is left alone. A failure does not end the set-up: the server works without a worker, and says what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! .venv/bin/python -m spark_jobs.java >/dev/null 2>&1; then
    package="$(.venv/bin/python -c 'from spark_jobs.java import JAVA_PACKAGE; print(JAVA_PACKAGE)')"
    echo "set-up: no Java 17 or 21 here, fetching $package (50 MB)" >&2
    scripts/install.sh "$package" || true
    .venv/bin/python -m spark_jobs.java >/dev/null || failed=1
fi
.venv/bin/python -m spark_jobs.jars >/dev/null || failed=1
if [ -n "${failed:-}" ]; then
    echo "set-up: the Spark worker cannot run yet. The server accepts and keeps changes without it. Once the" \
        "cause above is removed, run \`make setup\` again." >&2
fi
