"""Convert column types of MySQL and PostgreSQL to Iceberg types. Pure.

None means that the type is not known and follows from the values. Where several types are possible, the one
that can hold every value is used: an unsigned bigint is a decimal, a decimal of more than 38 digits a string.
"""

from __future__ import annotations

from functools import lru_cache

_DECIMAL_DIGITS_MAX = 38
_TEXT_LENGTH_MAX = 1_000  # an enum lists its values

_MYSQL = {
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "integer", "int1", "int2", "int3"), "int"),
    **dict.fromkeys(("int4", "bool", "boolean", "year"), "int"),
    **dict.fromkeys(("bigint", "int8"), "long"),
    "serial": "decimal(20,0)",
    "float": "float",
    **dict.fromkeys(("double", "double precision", "real"), "double"),
    "date": "date",
    "time": "time",
    # Both without a zone in the text that producers send.
    **dict.fromkeys(("datetime", "timestamp"), "timestamp"),
    **dict.fromkeys(("char", "varchar", "nchar", "nvarchar", "enum", "set", "json"), "string"),
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext"), "string"),
    **dict.fromkeys(("binary", "varbinary"), "binary"),
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob"), "binary"),
}
_MYSQL_UNSIGNED = {
    **dict.fromkeys(("int", "integer", "int4"), "long"),
    **dict.fromkeys(("bigint", "int8"), "decimal(20,0)"),
}
_MYSQL_DECIMALS = ("decimal", "numeric", "dec", "fixed")

_POSTGRES = {
    **dict.fromkeys(("smallint", "int2", "smallserial", "integer", "int", "int4", "serial"), "int"),
    **dict.fromkeys(("bigint", "int8", "bigserial", "oid", "xid"), "long"),
    **dict.fromkeys(("real", "float4"), "float"),
    **dict.fromkeys(("double precision", "float8"), "double"),
    **dict.fromkeys(("boolean", "bool"), "boolean"),
    "date": "date",
    "uuid": "uuid",
    "bytea": "binary",
    **dict.fromkeys(("time", "time without time zone"), "time"),
    **dict.fromkeys(("time with time zone", "timetz"), "string"),
    **dict.fromkeys(("timestamp", "timestamp without time zone"), "timestamp"),
    **dict.fromkeys(("timestamp with time zone", "timestamptz"), "timestamptz"),
    **dict.fromkeys(("text", "character varying", "varchar", "character", "char", "bpchar"), "string"),
    **dict.fromkeys(("name", "citext", "json", "jsonb", "xml", "interval", "money"), "string"),
    **dict.fromkeys(("inet", "cidr", "macaddr", "macaddr8", "bit", "bit varying", "varbit"), "string"),
    **dict.fromkeys(("hstore", "ltree", "tsvector", "tsquery", "pg_lsn"), "string"),
}

# java.sql.Types. INTEGER is a long, because Canal writes INTEGER for an unsigned int until a value needs
# more.
_JDBC = {
    -6: "int",
    5: "int",
    4: "long",
    -5: "long",
    7: "float",
    8: "double",
    1: "string",
    12: "string",
    2005: "string",
    91: "date",
    92: "time",
    93: "timestamp",
    2004: "binary",
}


def from_mysql(text: object) -> str | None:
    """`bigint(20) unsigned`, `varchar(255)`, `decimal(10,2)`, ..."""
    return _from_mysql(text) if isinstance(text, str) and len(text) <= _TEXT_LENGTH_MAX else None


def from_postgres(text: object) -> str | None:
    """`character varying(30)`, `timestamp(3) with time zone`, `numeric(5,2)`, `int4`, ..."""
    return _from_postgres(text) if isinstance(text, str) and len(text) <= _TEXT_LENGTH_MAX else None


def from_jdbc(code: object) -> str | None:
    return _JDBC.get(code) if isinstance(code, int) else None


# A producer has few types and repeats them with every row.
@lru_cache(maxsize=1024)
def _from_mysql(text: str) -> str | None:
    name, arguments, rest = _parts(text)
    unsigned = not {"unsigned", "zerofill"}.isdisjoint((*name.split(), *rest.split()))
    name = name.removesuffix(" zerofill").removesuffix(" unsigned")
    if name in _MYSQL_DECIMALS:
        return _decimal(arguments or "10", default_scale=0)
    if name == "bit":
        bits = int(arguments) if _is_number(arguments) else 1
        return "int" if bits < 32 else "long" if bits < 64 else "decimal(20,0)"
    if unsigned and name in _MYSQL_UNSIGNED:
        return _MYSQL_UNSIGNED[name]
    return _MYSQL.get(name)


@lru_cache(maxsize=1024)
def _from_postgres(text: str) -> str | None:
    if text.rstrip().endswith("]"):
        return "string"  # an array is written in PostgreSQL's form: {1,2}
    name, arguments, rest = _parts(text)
    if name in ("numeric", "decimal"):
        return _decimal(arguments, default_scale=0) if arguments else None
    if name.startswith("interval"):
        return "string"
    return _POSTGRES.get(f"{name} {rest}".strip().strip('"'))


def _parts(text: str) -> tuple[str, str, str]:
    """Return name, arguments and the rest: ("timestamp", "3", "with time zone")."""
    name, opened, rest = text.lower().partition("(")
    arguments, _, after = rest.rpartition(")")
    words = " ".join(name.split())
    return (words, arguments.strip(), " ".join(after.split())) if opened else (words, "", "")


def _decimal(arguments: str, *, default_scale: int) -> str | None:
    numbers = [part.strip() for part in arguments.split(",")]
    if not 1 <= len(numbers) <= 2 or not all(map(_is_number, numbers)):
        return None
    precision = int(numbers[0])
    scale = int(numbers[1]) if len(numbers) == 2 else default_scale
    if scale < 0:  # PostgreSQL rounds to tens, hundreds, ...
        precision, scale = precision - scale, 0
    precision = max(precision, scale, 1)
    return "string" if precision > _DECIMAL_DIGITS_MAX else f"decimal({precision},{scale})"


def _is_number(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) < 5
