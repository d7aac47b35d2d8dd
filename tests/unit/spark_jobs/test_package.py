"""The package as executors of a cluster get it: an archive below a relative path."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import spark_jobs

IMPORT_ALL = """
import importlib, pathlib, sys, zipfile
sys.path.insert(0, "./spark_jobs.zip")
names = [pathlib.PurePath(name) for name in zipfile.ZipFile("spark_jobs.zip").namelist()]
names = [name for name in names if name.suffix == ".py"]
for name in names:
    module = importlib.import_module(".".join(name.with_suffix("").parts).removesuffix(".__init__"))
    assert module.__file__.startswith("./spark_jobs.zip"), module.__file__
print(len(names))
"""


def test_every_module_can_be_imported_from_the_archive(tmp_path: Path) -> None:
    package = Path(spark_jobs.__file__).parent
    shutil.make_archive(str(tmp_path / "spark_jobs"), "zip", package.parent, package.name)
    ended = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) == len(list(package.rglob("*.py")))
