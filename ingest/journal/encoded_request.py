"""Encode a request for the journal, in the thread that received it; after this only SQL is left to do.

Each event of the request has a slot: its index among the changes, or after them among the rejects. Duplicates
are reported as slots. Producers name sources and transactions with any text of any length: NUL, which
PostgreSQL cannot store, is replaced, and a long name ends in a digest of the whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from typing import TypeGuard

import orjson

from catalog.errors import Invalid
from ingest.change import (
    SEPARATOR,
    Change,
    ChangeColumns,
    ParsedRequest,
    Reject,
    TransactionBegin,
    TransactionEnd,
    table_key,
)
from ingest.journal.encoding import encode, encode_columns
from ingest.journal.epochs import GtidRange, Run
from ingest.settings import JournalLimits

NAME_CHARACTERS_MAX = 200
DIGEST_BYTES = 15  # 120 bits; with its header a `bytes` of this length takes 48 bytes exactly


@lru_cache(maxsize=4096)
def name_key(name: str) -> str:
    """Return a producer's name for something in a form that both databases can store."""
    if name.isascii() and "\0" not in name and len(name) <= NAME_CHARACTERS_MAX:
        return name
    raw = name.encode("utf-8", "surrogatepass")
    plain = raw.decode("utf-8", "replace").replace("\0", "\N{SYMBOL FOR NULL}")
    if plain == name and len(name) <= NAME_CHARACTERS_MAX:
        return name
    return f"{plain[: NAME_CHARACTERS_MAX - 33]}#{blake2b(raw, digest_size=16).hexdigest()}"


def source_names(sources: Iterable[str]) -> str:
    """Return the sources of an entry as one text, each between two separators."""
    names = sorted({name_key(source).replace(SEPARATOR, "") for source in set(sources)})
    return SEPARATOR + SEPARATOR.join(names) + SEPARATOR


def has_source(names: str, source: str) -> bool:
    """Return whether `source_names` has this source, by its name in SQL."""
    return SEPARATOR + source.replace(SEPARATOR, "") + SEPARATOR in names


def identity_digests(warehouse: str, source: str, identities: Iterable[str]) -> list[bytes]:
    """Return the digest of each identity within its source."""
    prefix = orjson.dumps([warehouse, name_key(source)])
    return [
        blake2b(prefix + identity.encode("utf-8", "surrogatepass"), digest_size=DIGEST_BYTES).digest()
        for identity in identities
    ]


# -- requests

NUMBER_MAX = 2**62  # larger numbers would not fit into SQL together with their neighbours


@dataclass(frozen=True, slots=True)
class EncodedEntry:
    """The events of one table."""

    key: str
    blob: bytes
    slots: Sequence[int]  # of its changes, then of its rejects
    sources: str  # see `source_names`


@dataclass(frozen=True, slots=True)
class NumberedEvents:
    """The events of a source that numbers them."""

    source: str
    numbers: list[int]
    slots: Sequence[int]


@dataclass(frozen=True, slots=True)
class TransactionStep:
    """A change that belongs to a source transaction."""

    source: str
    transaction: str
    table: str | None  # None: the change is not stored
    ends: bool
    slot: int


@dataclass(slots=True)
class EncodedRequest:
    warehouse: str
    priority: int
    entries: list[EncodedEntry]
    stored_bytes: int
    indexes: list[int]  # the index of the event in each slot
    numbered: list[NumberedEvents] = field(default_factory=list)
    digests: list[bytes] = field(default_factory=list)
    digest_slots: Sequence[int] = ()
    digest_owners: Sequence[tuple[str, str]] = ()  # source and origin of each
    steps: list[TransactionStep] = field(default_factory=list)
    ends: list[TransactionEnd] = field(default_factory=list)
    begins: list[TransactionBegin] = field(default_factory=list)
    batch: tuple[bytes, bytes] | None = None  # digests of its name, and of its name with its body
    has_excluded: bool = False  # excluded events, which become known but have no entry
    runs: list[Run] = field(default_factory=list)
    epoch: str | None = None  # the name in the request
    # Set in each attempt to append it: the epoch of (source, origin), if it is not the first.
    epochs: dict[tuple[str, str], int] = field(default_factory=dict)

    def digests_in_epochs(self) -> list[bytes]:
        """Return the digests of its identities. Each epoch has its own: positions that count anew may repeat
        those of other changes. The name of an epoch is in the digest already.
        """
        if not self.epochs or self.epoch is not None:
            return self.digests
        epochs = [self.epochs.get(owner, 0) for owner in self.digest_owners]
        return [
            blake2b(digest, key=str(epoch).encode(), digest_size=DIGEST_BYTES).digest() if epoch else digest
            for digest, epoch in zip(self.digests, epochs, strict=True)
        ]


def encode_request(
    warehouse: str, parsed: ParsedRequest, *, priority: int, deduplicate: bool
) -> EncodedRequest:
    """Encode a request. Invalid if a part of it cannot be stored."""
    columns = parsed.columns
    if columns is not None and columns.size == parsed.events and _fits(columns.different.get("number", [])):
        return _encode_columns(warehouse, columns, priority, parsed.epoch, deduplicate=deduplicate)
    events: Sequence[Change | Reject] = [*parsed.changes, *parsed.rejects, *parsed.excluded]
    try:
        entries = _entries(parsed)
    except (TypeError, RecursionError) as error:
        raise Invalid(f"the journal cannot keep this request: {error}") from error
    encoded = EncodedRequest(
        warehouse=warehouse,
        priority=priority,
        entries=entries,
        stored_bytes=sum(len(entry.blob) for entry in entries),
        indexes=[event.index for event in events],
        has_excluded=bool(parsed.excluded),
        steps=_steps_of(parsed),
        ends=[
            TransactionEnd(end.index, name_key(end.source), name_key(end.transaction), end.size)
            for end in parsed.ends
        ],
        begins=[
            TransactionBegin(begin.index, name_key(begin.source), name_key(begin.transaction))
            for begin in parsed.begins
        ],
    )
    if parsed.format != "replay":  # a replayed change has the position of its epoch already
        encoded.runs = [replace(run, source=name_key(run.source)) for run in runs_of(parsed.changes)]
    encoded.epoch = parsed.epoch
    if deduplicate and events:
        _claim(encoded, events)
        owners = [
            (name_key(event.source), event.origin if isinstance(event, Change) else "") for event in events
        ]
        encoded.digest_owners = [owners[slot] for slot in encoded.digest_slots]
        encoded.batch = _batch(warehouse, parsed, events[0].source)
    return encoded


def _batch(warehouse: str, parsed: ParsedRequest, source: str) -> tuple[bytes, bytes] | None:
    if parsed.batch is None:
        return None
    names = (f"batch:{parsed.batch.name}", f"batch:{parsed.batch.name}:{parsed.batch.digest}")
    name, body = identity_digests(warehouse, source, names)
    return name, body


def _encode_columns(
    warehouse: str, columns: ChangeColumns, priority: int, epoch: str | None, *, deduplicate: bool
) -> EncodedRequest:
    """Encode a request of a source with numbers that has only changes of one table."""
    try:
        blob = encode_columns(columns)
    except (TypeError, RecursionError) as error:
        raise Invalid(f"the journal cannot keep this request: {error}") from error
    slots = range(columns.size)
    encoded = EncodedRequest(
        warehouse=warehouse,
        priority=priority,
        entries=[EncodedEntry(table_key(columns.table), blob, slots, source_names([columns.same["source"]]))],
        stored_bytes=len(blob),
        indexes=list(range(columns.first_index, columns.first_index + columns.size)),
    )
    source = name_key(columns.same["source"])
    if deduplicate:
        encoded.numbered = [NumberedEvents(source, columns.different["number"], slots)]
    positions, times = columns.different["position"], columns.different["time_ms"]
    encoded.runs = [Run(source, "", min(positions), max(positions), min(times), max(times), is_counted=True)]
    encoded.epoch = epoch
    return encoded


def _entries(parsed: ParsedRequest) -> list[EncodedEntry]:
    changes, rejects = parsed.changes, parsed.rejects
    tables = [change.table for change in changes]
    if changes and not rejects and tables.count(tables[0]) == len(tables):
        sources = source_names(change.source for change in changes)
        return [EncodedEntry(table_key(tables[0]), encode(changes, ()), range(len(changes)), sources)]
    gathered: dict[str, tuple[list[int], list[int]]] = {}
    for slot, table in enumerate(tables):
        gathered.setdefault(table_key(table), ([], []))[0].append(slot)
    for index, reject in enumerate(rejects):
        gathered.setdefault(table_key(reject.table), ([], []))[1].append(index)
    behind = len(changes)
    return [
        EncodedEntry(
            key,
            encode([changes[slot] for slot in slots], [rejects[index] for index in indexes]),
            [*slots, *(behind + index for index in indexes)],
            source_names(
                [
                    *(changes[slot].source for slot in slots),
                    *(rejects[index].source for index in indexes),
                ]
            ),
        )
        for key, (slots, indexes) in gathered.items()
    ]


def _steps(changes: Sequence[Change]) -> list[TransactionStep]:
    transactions = [change.transaction for change in changes]
    if transactions.count(None) == len(transactions):
        return []
    return [
        TransactionStep(
            name_key(change.source),
            name_key(change.transaction),
            table_key(change.table),
            change.transaction_ends,
            slot,
        )
        for slot, change in enumerate(changes)
        if change.transaction is not None
    ]


def _steps_of(parsed: ParsedRequest) -> list[TransactionStep]:
    """Return the steps in the order of the events. A transaction counts its excluded changes, but not their
    tables.
    """
    steps = _steps(parsed.changes)
    if not parsed.excluded:
        return steps
    first = len(parsed.changes) + len(parsed.rejects)
    indexes = {slot: change.index for slot, change in enumerate(parsed.changes)}
    for slot, change in enumerate(parsed.excluded, first):
        indexes[slot] = change.index
        if change.transaction is not None:
            names = (name_key(change.source), name_key(change.transaction))
            steps.append(TransactionStep(*names, None, change.transaction_ends, slot))
    return sorted(steps, key=lambda step: indexes[step.slot])


def _claim(encoded: EncodedRequest, events: Sequence[Change | Reject]) -> None:
    """Set the number or identity of each event, if it has one."""
    sources = [event.source for event in events]
    numbers = [event.number for event in events]
    if sources.count(sources[0]) == len(sources):
        if _fits(numbers):  # the usual case of a source with numbers
            encoded.numbered = [NumberedEvents(name_key(sources[0]), numbers, range(len(numbers)))]
            return
        if numbers.count(None) == len(numbers):
            identities = [event.identity for event in events]
            if "" not in identities:
                encoded.digests = identity_digests(
                    encoded.warehouse, _in_named(encoded, sources[0]), identities
                )
                encoded.digest_slots = range(len(identities))
                return
    _claim_mixed(encoded, events)


def _in_named(encoded: EncodedRequest, source: str) -> str:
    """Put the identities into the epoch that the request names."""
    return source if encoded.epoch is None else f"{source}~{encoded.epoch}"


def _claim_mixed(encoded: EncodedRequest, events: Sequence[Change | Reject]) -> None:
    counted: dict[str, tuple[list[int], list[int]]] = {}
    named: dict[str, tuple[list[str], list[int]]] = {}
    for slot, event in enumerate(events):
        number, identity = event.number, event.identity
        if number is not None and -NUMBER_MAX < number < NUMBER_MAX:
            numbers, slots = counted.setdefault(name_key(event.source), ([], []))
            numbers.append(number)
            slots.append(slot)
        elif number is not None or identity:
            identities, slots = named.setdefault(event.source, ([], []))
            identities.append(identity if number is None else f"#{number}")
            slots.append(slot)
    encoded.numbered = [
        NumberedEvents(source, numbers, slots) for source, (numbers, slots) in counted.items()
    ]
    digest_slots: list[int] = []
    for source, (identities, slots) in named.items():
        encoded.digests += identity_digests(encoded.warehouse, _in_named(encoded, source), identities)
        digest_slots += slots
    encoded.digest_slots = digest_slots


def _fits(numbers: list[int | None]) -> TypeGuard[list[int]]:
    known = [number for number in numbers if number is not None]
    return 0 < len(known) == len(numbers) and min(known) > -NUMBER_MAX and max(known) < NUMBER_MAX


def bound_of(limits: JournalLimits, priority: int) -> int:
    """Return how many bytes may be pending after a request of this priority."""
    if priority <= 0:
        return limits.bytes_max + limits.fallback_bytes_max
    low, middle, high = limits.levels
    return int(limits.bytes_max * {1: high, 2: middle}.get(priority, low))


_EPOCH_MARK = "~"  # sorts after every position


def in_epoch(position: str, epoch: int) -> str:
    """Return a position that sorts after all those of earlier epochs. Positions of the first epoch are
    unchanged.
    """
    return f"{_EPOCH_MARK}{epoch:08x}/{position}" if epoch and position else position


def put_in_epoch(change: Change, epoch: int) -> None:
    """Set the epoch in the position and the identity of a change: each epoch has its own numbers."""
    change.position = in_epoch(change.position, epoch)
    if change.number is not None:
        change.identity, change.number = f"{change.source}:{change.number}", None
    if change.identity:
        change.identity = f"{_EPOCH_MARK}{epoch}/{change.identity}"


def runs_of(changes: Sequence[Change]) -> list[Run]:
    """Return the runs of a request, in the order of their first change."""
    if not changes:
        return []
    gathered: dict[tuple[str, str], list[Change]] = {}
    sources, origins = [change.source for change in changes], [change.origin for change in changes]
    if sources.count(sources[0]) == len(sources) and origins.count(origins[0]) == len(origins):
        gathered[sources[0], origins[0]] = list(changes)
    else:
        for change in changes:
            gathered.setdefault((change.source, change.origin), []).append(change)
    return [_run(source, origin, some) for (source, origin), some in gathered.items() if source]


def _run(source: str, origin: str, changes: list[Change]) -> Run:
    positions = [change.position for change in changes if change.position]
    times = [change.time_ms for change in changes]
    known = [time_ms for time_ms in times if time_ms is not None]
    return Run(
        source,
        origin,
        min(positions, default=""),
        max(positions, default=""),
        min(known) if len(known) == len(times) else None,
        max(known, default=None),
        is_counted=all(change.number is not None for change in changes),
        may_fall=any(change.operation == "read" for change in changes),
        gtids=_gtids(changes),
    )


def _gtids(changes: list[Change]) -> GtidRange | None:
    found = [(change.gtid.number, change.position) for change in changes if change.gtid is not None]
    gtid = changes[0].gtid
    if gtid is None or len(found) < len(changes):
        return None
    first, last = min(found)[0], max(found)[0]
    return GtidRange(gtid.series, gtid.domain, first, last, min(at for number, at in found if number == last))
