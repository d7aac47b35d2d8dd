"""The epoch of a source over HTTP: load it, and begin a new one for a source that is held."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel, ConfigDict, Field

from catalog.api.dependencies import ReaderWarehouse, WriterWarehouse
from catalog.names import decode_segment
from ingest.journal.epochs import SourceState
from ingest.journal.journal import Journal
from ingest.journal.source_control import new_history

router = APIRouter(prefix="/lake/v1", tags=["Sources"])


class EpochAnswer(BaseModel):
    epoch: int
    began_ms: int = Field(serialization_alias="began-ms", validation_alias="began-ms")
    reason: str


class SourceEpoch(BaseModel):
    source: str
    epoch: int = Field(description="The number of the epoch; changes are ordered by (epoch, position)")
    position: str = Field(description="The newest position in this epoch")
    time_ms: int | None = Field(serialization_alias="time-ms", description="The newest time at the source")
    held: str | None = Field(description="Why changes are refused; null if they are accepted")
    held_ms: int | None = Field(serialization_alias="held-ms")
    same_history: bool = Field(
        serialization_alias="same-history", description="Decreasing positions are accepted in this epoch"
    )
    epochs: list[EpochAnswer]


class EpochRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")
    reason: str = Field("begun by a person", max_length=200)
    same_history: bool = Field(
        False,
        alias="same-history",
        description="Begin no new epoch: accept decreasing positions in the current one",
    )


def _journal(request: Request) -> Journal:
    journal: Journal = request.app.state.ingest.journal
    return journal


JournalOf = Annotated[Journal, Depends(_journal)]


@router.get("/{warehouse}/sources/{source}/epoch", operation_id="loadEpoch", response_model=SourceEpoch)
def load_epoch(journal: JournalOf, warehouse: ReaderWarehouse, source: str) -> Any:
    """Load the epoch of a source that has sent changes, and the reason why it is held."""
    name = decode_segment(source)
    return _shown(name, journal.source(warehouse, name))


@router.post("/{warehouse}/sources/{source}/epoch", operation_id="beginEpoch", response_model=SourceEpoch)
def begin_epoch(journal: JournalOf, warehouse: WriterWarehouse, source: str, body: EpochRequest) -> Any:
    """Begin a new epoch of a source, after a failover or a restore, or accept decreasing positions in the
    current one.
    """
    name, now_ms = decode_segment(source), time.time_ns() // 1_000_000

    def change(state: SourceState) -> SourceState:
        if body.same_history:
            return replace(state, may_fall=True, held=None, held_ms=None)
        return new_history(state, now_ms, body.reason)

    return _shown(name, journal.change_source(warehouse, name, change))


def _shown(name: str, state: SourceState) -> dict[str, Any]:
    return {
        "source": name,
        "epoch": state.epoch,
        "position": state.newest.get(state.epoch, ""),
        "time_ms": state.time_ms,
        "held": state.held,
        "held_ms": state.held_ms,
        "same_history": state.may_fall,
        "epochs": list(state.history),
    }
