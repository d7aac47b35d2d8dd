"""Policies: what maintenance does to a table. They are set on a warehouse, a namespace or a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from catalog.errors import Invalid
from catalog.names import Identifier
from maintenance.kept_moments import DEFAULT, KeptMomentsPolicy
from maintenance.store import MaintenanceStore

KEPT_MOMENTS = "kept-moments"
ORPHAN_AGE_HOURS_MIN = 24
ZSTD_LEVEL_MAX = 22
MAY_BE_ZERO = frozenset({"archive-after-days", "quiet-minutes"})
# Of S3. Classes whose objects have to be restored first are not among them: queries read the archive.
STORAGE_CLASSES = frozenset(
    {
        "STANDARD",
        "STANDARD_IA",
        "ONEZONE_IA",
        "INTELLIGENT_TIERING",
        "GLACIER_IR",
        "REDUCED_REDUNDANCY",
        "EXPRESS_ONEZONE",
    }
)


@dataclass(frozen=True, slots=True)
class TablePolicy:
    """Thresholds and switches. The texts of the fields in JSON have dashes."""

    expire: bool = True
    compact: bool = True
    small_files_min: int = 12  # so many files of similar size become one
    delete_files_max: int = 32
    delete_ratio: float = 0.2  # deleted rows among all rows
    target_bytes: int = 128 * 2**20
    quiet_minutes: int = 10  # a table of another writer is not compacted while that writer is at work
    remove_orphans: bool = True
    orphan_age_hours: int = 7 * 24
    archive_after_days: int = 0  # 0: changes are never archived
    archive_compression_level: int = 9  # of zstd
    archive_location: str = ""  # a folder for the archives of all tables; "": the table's own location
    archive_storage_class: str = ""  # of S3; "": what the bucket gives

    def with_values(self, given: Mapping[str, Any]) -> TablePolicy:
        """Invalid says which value is wrong."""
        known = {one.name: one for one in fields(self)}
        values: dict[str, Any] = {}
        for key, value in given.items():
            name = key.replace("-", "_")
            if name not in known:
                names = ", ".join(sorted(one.replace("_", "-") for one in known))
                raise Invalid(f"unknown maintenance setting {key}: one of {names}")
            values[name] = _checked(name.replace("_", "-"), value, getattr(self, name))
        changed = replace(self, **values)
        if changed.orphan_age_hours < ORPHAN_AGE_HOURS_MIN:
            raise Invalid(
                f"orphan-age-hours must be at least {ORPHAN_AGE_HOURS_MIN}: a writer may still need the file"
            )
        if changed.archive_compression_level > ZSTD_LEVEL_MAX:
            raise Invalid(f"archive-compression-level must be at most {ZSTD_LEVEL_MAX}")
        if changed.archive_storage_class and changed.archive_storage_class not in STORAGE_CLASSES:
            raise Invalid(f"archive-storage-class must be one of {', '.join(sorted(STORAGE_CLASSES))}")
        return changed

    def as_json(self) -> dict[str, Any]:
        return {name.replace("_", "-"): value for name, value in asdict(self).items()}


def _checked(name: str, value: Any, default: Any) -> Any:
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise Invalid(f"{name} must be true or false")
        return value
    if isinstance(default, str):
        if not isinstance(value, str):
            raise Invalid(f"{name} must be a text")
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**50:
        raise Invalid(f"{name} must be a number above 0")
    if not value and name not in MAY_BE_ZERO:
        raise Invalid(f"{name} must be a number above 0")
    return float(value) if isinstance(default, float) else int(value)


class Policies:
    """Reads and sets policies. `kept_moments` is the default of the server."""

    def __init__(self, store: MaintenanceStore, kept_moments: str = DEFAULT, *, is_on: bool = True) -> None:
        self._store = store
        self._kept_moments = KeptMomentsPolicy.parse(kept_moments)
        self._default = (
            TablePolicy() if is_on else TablePolicy(expire=False, compact=False, remove_orphans=False)
        )

    def kept_moments(self, warehouse: str) -> KeptMomentsPolicy:
        given = self._store.policies(warehouse).get(("", ""), {}).get(KEPT_MOMENTS)
        return KeptMomentsPolicy.parse(given) if given is not None else self._kept_moments

    def of_table(self, warehouse: str, identifier: Identifier) -> TablePolicy:
        return self.effective(self._store.policies(warehouse), identifier)

    def effective(
        self, given: Mapping[tuple[str, str], Mapping[str, Any]], identifier: Identifier | None
    ) -> TablePolicy:
        """The policy of a table, or of the warehouse: the defaults, changed by each level on the way."""
        policy = self._default.with_values(_without_moments(given.get(("", ""), {})))
        if identifier is None:
            return policy
        levels = identifier.namespace.levels
        for end in range(1, len(levels) + 1):
            policy = policy.with_values(given.get(("\x1f".join(levels[:end]), ""), {}))
        return (
            policy.with_values(given.get((identifier.namespace.key, identifier.name), {}))
            if identifier.name
            else policy
        )

    def check(self, given: Mapping[str, Any], *, is_warehouse: bool) -> None:
        """Invalid if these settings cannot be set here."""
        if KEPT_MOMENTS in given:
            if not is_warehouse:
                raise Invalid(f"{KEPT_MOMENTS} are moments of the whole warehouse: set them there")
            if not isinstance(given[KEPT_MOMENTS], str):
                raise Invalid(f"{KEPT_MOMENTS} must be a text such as {DEFAULT}")
            KeptMomentsPolicy.parse(given[KEPT_MOMENTS])
        self._default.with_values(_without_moments(given))


def _without_moments(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if name != KEPT_MOMENTS}
