"""What the journal refuses besides what the catalog's errors say already."""

from __future__ import annotations

from catalog.errors import Conflict, Unavailable


class JournalFull(Unavailable):
    """Nothing of the request was stored; the same request may be sent again after `retry_after_s`.

    `level` says how full the journal is: pending bytes as a part of `bytes_max`.
    """

    status = 429
    type = "TooManyRequestsException"

    def __init__(self, level: float, *, retry_after_s: int = 1) -> None:
        super().__init__(
            f"the journal is full ({level:.0%} of its size waits to land): send the request again later",
            retry_after_s=retry_after_s,
        )
        self.level = level


class BatchChanged(Conflict):
    """Nothing of the request was stored."""

    def __init__(self) -> None:
        super().__init__(
            "another body was stored under this Idempotency-Key, Webhook-Id or X-Batch-Seq: send each body "
            "under a key of its own"
        )
