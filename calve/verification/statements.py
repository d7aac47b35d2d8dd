"""SQL that computes checksums of a table, in several dialects. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from calve.verification.columns import Column, Dialect, quoted, text_of

HASH_DIGITS = 15
BUCKET_DIGITS = 2
FINE_DIGITS = 4  # of the buckets that differing ones are divided into


@dataclass(frozen=True, slots=True)
class Statements:
    """`table` is the name as the engine knows it, one part after the other."""

    table: Sequence[str]
    key: Sequence[Column]
    columns: Sequence[Column]
    dialect: Dialect

    def buckets(self, digits: int = BUCKET_DIGITS, within: Collection[str] | None = None) -> str:
        """Bucket, number of rows and sum of hashes."""
        where = f"\nWHERE substr(k, 1, {BUCKET_DIGITS}) IN ({_texts(within)})" if within is not None else ""
        return (
            f"SELECT substr(k, 1, {digits}) AS bucket, count(*) AS row_count, {self._sum()} AS hash_sum\n"
            f"FROM ({self._hashed()}) AS hashed{where}\n"
            "GROUP BY 1\nORDER BY 1"
        )

    def rows(self, digits: int, within: Collection[str]) -> str:
        """The same for each key of these buckets, by the MD5 of the key."""
        return (
            f"SELECT k, count(*) AS row_count, {self._sum()} AS hash_sum\n"
            f"FROM ({self._hashed()}) AS hashed\n"
            f"WHERE substr(k, 1, {digits}) IN ({_texts(within)})\n"
            "GROUP BY 1"
        )

    def texts(self, keys: Collection[str]) -> str:
        """The texts of the values of these rows, by the MD5 of their keys."""
        names = [*self.key, *self.columns]
        values = ", ".join(f"{self._text(column)} AS v{number}" for number, column in enumerate(names))
        return (
            f"SELECT k, {', '.join(f'v{number}' for number in range(len(names)))}\n"  # noqa: S608
            f"FROM (SELECT {self._digest(self.key)} AS k, {values} FROM {self._table()}) AS written\n"
            f"WHERE k IN ({_texts(keys)})"
        )

    def any_row(self) -> str:
        return f"SELECT 1 AS present FROM {self._table()} LIMIT 1"  # noqa: S608

    def _hashed(self) -> str:
        return (
            f"SELECT {self._digest(self.key)} AS k,\n"
            f"       {self._number(self._digest(self.columns))} AS h\n"
            f"FROM {self._table()}"
        )

    def _table(self) -> str:
        return ".".join(quoted(part, self.dialect) for part in self.table)

    def _digest(self, columns: Sequence[Column]) -> str:
        parts = [self._part(column) for column in columns]
        if self.dialect == "mysql":
            return f"MD5(CONCAT({', '.join(parts)}))"
        joined = " || ".join(parts)
        return f"md5(convert_to({joined}, 'UTF8'))" if self.dialect == "postgresql" else f"md5({joined})"

    def _part(self, column: Column) -> str:
        text = self._text(column)
        if self.dialect == "mysql":
            return f"COALESCE(CONCAT(CHAR_LENGTH({text}), ':', {text}), '-')"
        return f"coalesce(length({text}) || ':' || {text}, '-')"

    def _text(self, column: Column) -> str:
        found = text_of(column, self.dialect)
        assert found is not None, f"{column.name} is not compared"
        return found

    def _number(self, digest: str) -> str:
        digits = f"substr({digest}, 1, {HASH_DIGITS})"
        if self.dialect == "postgresql":
            return f"('x' || {digits})::bit(60)::bigint"
        if self.dialect == "mysql":
            return f"CAST(CONV({digits}, 16, 10) AS UNSIGNED)"
        return f"('0x' || {digits})::BIGINT"

    def _sum(self) -> str:
        if self.dialect == "mysql":
            return "CAST(sum(h) AS CHAR)"
        return "sum(h)::text" if self.dialect == "postgresql" else "sum(h)::VARCHAR"


def _texts(values: Collection[str]) -> str:
    """Hexadecimal digits alone: nothing in them needs an escape."""
    return ", ".join(f"'{value}'" for value in sorted(values))
