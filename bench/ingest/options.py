"""What a measurement is asked for on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from tests.harness.stacks import StackName

Stack = Literal["embedded", "production"]
STACKS: tuple[Stack, ...] = get_args(Stack)
COMPONENTS: dict[Stack, StackName] = {"embedded": "embedded", "production": "postgres-s3"}
ABOUT: dict[Stack, str] = {"embedded": "SQLite and files", "production": "PostgreSQL and S3"}


@dataclass(frozen=True, slots=True)
class Options:
    quick: bool = False
    workers: int = 1  # server processes
    stack: Stack = "embedded"
    rows: int | None = None  # of first-load, rebuild and convert, if not their own number
