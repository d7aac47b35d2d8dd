"""A whole warehouse as plain dicts: what every operation does to it, and what it refuses.

The model knows nothing of SQL, files or versions. A `World` is what every name means at one moment; `Lake`
holds the present, the world after every number, the open transactions and the dropped tables. Each operation
either changes the world that it is given or raises `Refused` with the name of the error.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import Any

Key = tuple[str, str]  # namespace and name; an empty name is the namespace itself
_tokens = itertools.count(1)


class Refused(Exception):
    """What the model answers where the catalog raises the error of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


@dataclass(frozen=True, slots=True)
class Thing:
    """A table, a view or a namespace. `token` differs after every write to its name."""

    kind: str
    uuid: str
    snapshots: tuple[int, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    protected: bool = False
    token: int = 0

    def written(self, **changes: Any) -> Thing:
        return replace(self, token=next(_tokens), **changes)

    def with_property(self, key: str, value: str) -> Thing:
        return self.written(properties=tuple(sorted((dict(self.properties) | {key: value}).items())))

    @property
    def seen(self) -> tuple[Any, ...]:
        """What a reader can tell."""
        return (self.kind, self.uuid, self.snapshots, self.properties)


World = dict[Key, Thing]


@dataclass(frozen=True, slots=True)
class Request:
    """A commit that can be tried again on another version of its table."""

    snapshot: int | None = None
    parent: int | None = None
    key: str = ""
    value: str = ""

    def on(self, thing: Thing) -> Thing:
        if self.snapshot is None:
            return thing.with_property(self.key, self.value)
        if (thing.snapshots or (None,))[-1] != self.parent:
            raise Refused("RequirementFailed")
        return thing.written(snapshots=(*thing.snapshots, self.snapshot))


@dataclass(slots=True)
class Transaction:
    base: World
    world: World
    expires_ms: int
    number: int  # at which it was opened
    requests: dict[Key, list[Request | None]] = field(default_factory=dict)

    def touch(self, key: Key, request: Request | None) -> None:
        self.requests.setdefault(key, []).append(request)


class Lake:
    """The model of one warehouse."""

    def __init__(self) -> None:
        self.present: World = {}
        self.moments: list[World] = [{}]
        self.open: dict[str, Transaction] = {}
        self.dropped: dict[str, tuple[Key, Thing]] = {}
        self.renamed_and_dropped: set[str] = (
            set()
        )  # in one transaction: they may be among the dropped, or not

    def world(self, where: str) -> World:
        return self.present if where == "main" else self.open[where].world

    def land(self) -> None:
        """The present is a moment now."""
        self.moments.append(dict(self.present))

    def set(self, where: str, changes: dict[Key, Thing | None], request: Request | None = None) -> None:
        """Write to the present, under the next number, or to an open transaction."""
        world = self.world(where)
        for key, thing in changes.items():
            if thing is None:
                world.pop(key, None)
            else:
                world[key] = thing
            if where != "main":
                self.open[where].touch(key, request)
        if where == "main":
            self.land()

    # -- names

    def create(self, where: str, key: Key, thing: Thing) -> None:
        world = self.world(where)
        namespace, name = key
        if not name:
            if key in world:
                raise Refused("AlreadyExists")
            parent = namespace.rpartition("\x1f")[0]
            if parent and (parent, "") not in world:
                raise Refused("NoSuchNamespace")
        else:
            require_free(world, key)
        self.set(where, {key: thing.written()})

    def drop(self, where: str, key: Key, kind: str) -> None:
        world = self.world(where)
        found = require(world, key, kind)
        if kind == "namespace" and not is_empty(world, key[0]):
            raise Refused("NamespaceNotEmpty")
        if self._is_protected(found.uuid):
            raise Refused("Conflict")
        if where == "main" and kind != "namespace":
            self.dropped[found.uuid] = (key, found)
        self.set(where, {key: None})

    def rename(self, where: str, old: Key, new: Key, kind: str) -> None:
        """A protected table may change its name, and stays protected."""
        world = self.world(where)
        found = require(world, old, kind)
        if (new[0], "") not in world:
            raise Refused("NoSuchNamespace")
        if new in world:
            raise Refused("AlreadyExists")
        self.set(where, {old: None, new: found.written()})

    def undrop(self, uuid: str) -> None:
        key, thing = self.dropped[uuid]
        require_free(self.present, key)
        del self.dropped[uuid]
        self.set("main", {key: thing.written(protected=False)})

    def protect(self, key: Key, protected: bool) -> None:
        """Not a write: it has no number."""
        self.present[key] = replace(require(self.present, key, "table"), protected=protected)

    # -- commits

    def commit(self, where: str, requests: dict[Key, Request]) -> None:
        """All or nothing; a request that changes nothing writes nothing."""
        world = self.world(where)
        after: dict[Key, Thing] = {}
        for key, request in requests.items():
            found = require(world, key, "table")
            thing = request.on(found)
            if thing.seen != found.seen:
                after[key] = thing
        for key, thing in after.items():
            world[key] = thing
            if where != "main":
                self.open[where].touch(key, requests[key])
        if after and where == "main":
            self.land()

    def set_property(self, where: str, key: Key, kind: str, name: str, value: str) -> None:
        """Of a view or a namespace."""
        found = require(self.world(where), key, kind)
        thing = found.with_property(name, value)
        if thing.seen != found.seen:
            self.set(where, {key: thing})

    # -- transactions

    def begin(self, name: str, expires_ms: int) -> None:
        # Protection belongs to the present: a transaction looks there at a drop and at its publish.
        base = {key: replace(thing, protected=False) for key, thing in self.present.items()}
        self.open[name] = Transaction(base, dict(base), expires_ms, len(self.moments) - 1)

    def publish(self, name: str) -> int | None:
        """The number; Refused leaves the transaction open."""
        transaction = self.open[name]
        changes = self._changes(transaction)
        staying = {thing.uuid for thing in changes.values() if thing is not None}
        after, lost = dict(self.present), {}
        for key, wanted in changes.items():
            live = self.present.get(key)
            _require_unprotected(live, wanted, staying)
            if wanted is None:
                after.pop(key, None)
                if live is not None and live.kind != "namespace" and live.uuid not in staying:
                    lost[live.uuid] = (key, live)
            else:
                after[key] = wanted.written(protected=self._is_protected(wanted.uuid))
        _require_structure(transaction, self.present, after)
        del self.open[name]
        if not changes:
            return None
        self.present = after
        self.dropped = {u: kept for u, kept in (self.dropped | lost).items() if u not in staying}
        self.land()
        return len(self.moments) - 1

    def _changes(self, transaction: Transaction) -> dict[Key, Thing | None]:
        """What publishing makes of every name, in their order; Refused if one moved."""
        changes: dict[Key, Thing | None] = {}
        for key in sorted(transaction.requests):
            base, wanted, live = (w.get(key) for w in (transaction.base, transaction.world, self.present))
            if base is None and wanted is None:
                continue  # made and dropped inside
            if (live.token if live else None) != (base.token if base else None):
                wanted = _rebased(transaction.requests[key], base, wanted, live)
            changes[key] = wanted
        return changes

    def _is_protected(self, uuid: str) -> bool:
        return any(thing.uuid == uuid and thing.protected for thing in self.present.values())


def require(world: World, key: Key, kind: str) -> Thing:
    found = world.get(key)
    if found is None or found.kind != kind:
        raise Refused(f"NoSuch{kind.capitalize()}")
    return found


def require_free(world: World, key: Key) -> None:
    if (key[0], "") not in world:
        raise Refused("NoSuchNamespace")
    if key in world:
        raise Refused("AlreadyExists")


def is_empty(world: World, namespace: str) -> bool:
    return not any((ns == namespace and name) or ns.startswith(namespace + "\x1f") for ns, name in world)


def _require_unprotected(live: Thing | None, wanted: Thing | None, staying: set[str]) -> None:
    """A protected thing may be written to and change its name; it may not go, nor give its name away."""
    if live is None or not live.protected or (wanted is not None and wanted.uuid == live.uuid):
        return
    if wanted is not None or live.uuid not in staying:
        raise Refused("Conflict")


def _rebased(
    requests: list[Request | None], base: Thing | None, wanted: Thing | None, live: Thing | None
) -> Thing:
    """The commits of the transaction on what the table is now, if they are plain and still hold."""
    if live is None or base is None or wanted is None or live.kind != "table":
        raise Refused("CommitFailed")
    if not live.uuid == base.uuid == wanted.uuid:
        raise Refused("CommitFailed")
    thing = live
    for request in requests:
        if request is None:
            raise Refused("CommitFailed")
        try:
            thing = request.on(thing)
        except Refused:
            raise Refused("CommitFailed") from None
    return thing


def _require_structure(transaction: Transaction, before: World, after: World) -> None:
    """In the order of the names, as the store looks."""
    for key in sorted(transaction.requests):
        namespace, name = key
        if key not in after and key in before and not name and not is_empty(after, namespace):
            raise Refused("NamespaceNotEmpty")
        if key in after and key not in before:
            parent = namespace if name else namespace.rpartition("\x1f")[0]
            if parent and (parent, "") not in after:
                raise Refused("NoSuchNamespace")
