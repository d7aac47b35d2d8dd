"""What a publish sets: kept with its job, so that any server can do it."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import orjson

from ingest.landing.tables import Step


@dataclass(frozen=True, slots=True)
class Landing:
    commit_us: int
    files: list[str]  # staged; of no use once it is published
    steps: list[Step]

    def encode(self) -> bytes:
        return orjson.dumps(asdict(self))

    @classmethod
    def decode(cls, text: bytes) -> Landing:
        given = orjson.loads(text)
        steps = [
            Step(
                **{
                    **step,
                    "table": tuple(step["table"]),
                    "watermarks": {source: tuple(mark) for source, mark in step["watermarks"].items()},
                }
            )
            for step in given["steps"]
        ]
        return cls(given["commit_us"], given["files"], steps)
