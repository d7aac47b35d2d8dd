"""A pytest plugin that imports one module with a mistake.

CALVE_TEST_MISTAKE=NAME pytest -p tests.faults.mistaken_import SUITE
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path

from tests.faults.ingest_mistakes import MISTAKES, Mistake

VARIABLE = "CALVE_TEST_MISTAKE"


class _MistakenLoader(SourceFileLoader):
    """Compiles the changed text. Compiled files on the disk are neither read nor written."""

    def __init__(self, mistake: Mistake, path: str) -> None:
        super().__init__(mistake.module, path)
        self._mistake = mistake

    def get_code(self, fullname: str) -> types.CodeType:
        text = Path(self.path).read_text()
        return compile(text.replace(self._mistake.right, self._mistake.wrong), self.path, "exec")


class _Finder(MetaPathFinder):
    def __init__(self, mistake: Mistake) -> None:
        self._mistake = mistake

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._mistake.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            spec.loader = _MistakenLoader(self._mistake, spec.origin)
        return spec


def _install(name: str) -> None:
    mistake = next(one for one in MISTAKES if one.name == name)
    if mistake.module in sys.modules:
        raise RuntimeError(f"{mistake.module} is imported already: load this plugin first")
    sys.meta_path.insert(0, _Finder(mistake))


if VARIABLE in os.environ:
    _install(os.environ[VARIABLE])
