"""Run by tests: DuckDB opened and confined as in a query process, and then statements that nobody checked.

    python confined.py '{"settings": {...}, "statements": [...]}'

Prints a JSON list: for each statement {"rows": [...]} or {"error": "..."}.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from query import child, sandbox


def main() -> None:
    given = json.loads(sys.argv[1])
    with sandbox.memory_status() as status:
        child.confine_imports(given["settings"])
        from query import engine

        connection = engine.open_duckdb(given["settings"])
        engine.confine(connection, given["settings"], status)
    print(json.dumps([_answer(connection, statement) for statement in given["statements"]]))


def _answer(connection: Any, statement: str) -> dict[str, Any]:
    import duckdb

    try:
        if statement.startswith("open "):
            return {"rows": [[Path(statement.removeprefix("open ")).read_text()]]}
        rows = connection.execute(statement).fetchall()
        return {"rows": [[str(value) for value in row] for row in rows]}
    except (duckdb.Error, OSError) as error:
        return {"error": f"{type(error).__name__}: {error}"}


if __name__ == "__main__":
    main()
