"""What a worker knows of the tables it wrote to."""

from __future__ import annotations

from spark_jobs.key_indexes import KeyIndexes
from spark_jobs.targets import Ceilings
from spark_jobs.tidying import Tidied


class Known:
    """Shared by the lanes of a worker. Only ever a short cut: what is forgotten is found out again.

    `small`: whether the driver writes small batches by itself.
    """

    def __init__(self, *, small: bool = True) -> None:
        self.small = small
        self.ceilings = Ceilings()
        self.indexes = KeyIndexes()
        self.tidied = Tidied()

    def forget(self, table: tuple[str, ...]) -> None:
        self.ceilings.forget(table)
        self.indexes.forget(table)
