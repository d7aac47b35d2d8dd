"""The statements that Trino runs, one after the other. test_trino.py runs the rows of these tables.

`{c}` in a statement is the catalog, `{c}_now` the catalog of `main@now`, `{c}_reader` that of a principal
with the role reader. A step that has a `name` keeps its single value under it, for the steps that follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Step:
    """A statement, and the rows that it must answer, or a part of the message with which it must fail."""

    sql: str
    rows: list[list[Any]] | None = None
    fails: str | None = None
    name: str | None = None


SCHEMAS = (
    Step("CREATE SCHEMA {c}.shop"),
    Step("SHOW SCHEMAS FROM {c} LIKE 'shop'", [["shop"]]),
    Step("CREATE SCHEMA IF NOT EXISTS {c}.shop"),
    Step("CREATE SCHEMA {c}.shop", fails="already exists"),
    Step("CREATE SCHEMA {c}.region"),
    Step('CREATE SCHEMA {c}."region.north"'),
    Step('CREATE TABLE {c}."region.north".t (id bigint)'),
    Step('INSERT INTO {c}."region.north".t VALUES 1, 2', [[2]]),
    Step('SELECT sum(id) FROM {c}."region.north".t', [[3]]),
    Step('DROP TABLE {c}."region.north".t'),
    Step('DROP SCHEMA {c}."region.north"'),
    Step("DROP SCHEMA {c}.region"),
)

ROWS = (
    Step("CREATE TABLE {c}.shop.orders (id bigint NOT NULL, customer varchar, amount integer, day date)"),
    Step("SHOW TABLES FROM {c}.shop", [["orders"]]),
    Step("CREATE TABLE {c}.shop.orders (id bigint)", fails="already exists"),
    Step("CREATE TABLE IF NOT EXISTS {c}.shop.orders (id bigint)"),
    Step("SELECT count(*) FROM {c}.shop.orders", [[0]]),
    Step(
        "INSERT INTO {c}.shop.orders VALUES "
        "(1, 'Ada', 10, DATE '2026-11-01'), (2, 'Bo', 20, DATE '2026-11-02'), "
        "(3, 'Cy', 30, DATE '2026-12-01')",
        [[3]],
    ),
    Step(
        "SELECT id, customer, amount FROM {c}.shop.orders ORDER BY id",
        [[1, "Ada", 10], [2, "Bo", 20], [3, "Cy", 30]],
    ),
    Step("INSERT INTO {c}.shop.orders VALUES (NULL, 'nobody', 0, NULL)", fails="NULL value not allowed"),
    Step(
        'SELECT snapshot_id FROM {c}.shop."orders$snapshots" ORDER BY committed_at DESC LIMIT 1', name="first"
    ),
    Step("SELECT CAST(current_timestamp(6) AS varchar)", name="moment"),
    Step(
        "INSERT INTO {c}.shop.orders SELECT id + 3, upper(customer), amount, day FROM {c}.shop.orders", [[3]]
    ),
    Step("UPDATE {c}.shop.orders SET amount = amount + 1 WHERE id = 2", [[1]]),
    Step("SELECT amount FROM {c}.shop.orders WHERE id = 2", [[21]]),
    Step("DELETE FROM {c}.shop.orders WHERE id > 4", [[2]]),
    Step("SELECT array_agg(id ORDER BY id) FROM {c}.shop.orders", [[[1, 2, 3, 4]]]),
    Step(
        "MERGE INTO {c}.shop.orders t USING (VALUES (1, 'gone', 0), (2, 'Bob', 25), (9, 'Di', 90)) "
        "AS s (id, customer, amount) ON t.id = s.id "
        "WHEN MATCHED AND s.customer = 'gone' THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET customer = s.customer, amount = s.amount "
        "WHEN NOT MATCHED THEN INSERT (id, customer, amount) VALUES (s.id, s.customer, s.amount)",
        [[3]],
    ),
    Step(
        "SELECT id, customer, amount FROM {c}.shop.orders ORDER BY id",
        [[2, "Bob", 25], [3, "Cy", 30], [4, "ADA", 10], [9, "Di", 90]],
    ),
)

CREATED_FROM_QUERIES = (
    Step("CREATE TABLE {c}.shop.copy AS SELECT * FROM {c}.shop.orders", [[4]]),
    Step("SELECT count(*), sum(amount) FROM {c}.shop.copy", [[4, 155]]),
    Step("CREATE TABLE {c}.shop.empty AS SELECT * FROM {c}.shop.orders WITH NO DATA"),
    Step("SELECT count(*) FROM {c}.shop.empty", [[0]]),
    Step(
        "CREATE TABLE {c}.shop.parts "
        "WITH (partitioning = ARRAY['month(day)', 'bucket(id, 4)'], format = 'ORC') "
        "AS SELECT * FROM {c}.shop.orders",
        [[4]],
    ),
    Step("SELECT id FROM {c}.shop.parts WHERE day >= DATE '2026-12-01'", [[3]]),
    Step(
        "CREATE TABLE {c}.shop.avro WITH (format = 'AVRO', sorted_by = ARRAY['id']) AS SELECT 1 AS id", [[1]]
    ),
    Step("CREATE OR REPLACE TABLE {c}.shop.avro AS SELECT 'new' AS word", [[1]]),
    Step("SELECT * FROM {c}.shop.avro", [["new"]]),
    Step("TRUNCATE TABLE {c}.shop.copy"),
    Step("SELECT count(*) FROM {c}.shop.copy", [[0]]),
)

EVOLUTION = (
    Step("ALTER TABLE {c}.shop.orders ADD COLUMN note varchar"),
    Step("SELECT count(*) FROM {c}.shop.orders WHERE note IS NULL", [[4]]),
    Step("INSERT INTO {c}.shop.orders VALUES (10, 'Ed', 5, DATE '2026-12-02', 'first')", [[1]]),
    Step("ALTER TABLE {c}.shop.orders RENAME COLUMN note TO remark"),
    Step("SELECT remark FROM {c}.shop.orders WHERE id = 10", [["first"]]),
    Step("ALTER TABLE {c}.shop.orders ALTER COLUMN amount SET DATA TYPE bigint"),
    Step("INSERT INTO {c}.shop.orders (id, amount) VALUES (11, 5000000000)", [[1]]),
    Step("ALTER TABLE {c}.shop.orders ALTER COLUMN id DROP NOT NULL"),
    Step("ALTER TABLE {c}.shop.orders ADD COLUMN address row(street varchar, number integer)"),
    Step("ALTER TABLE {c}.shop.orders ADD COLUMN address.city varchar"),
    Step("UPDATE {c}.shop.orders SET address = ROW('Long Lane', 7, 'Nuuk') WHERE id = 11", [[1]]),
    Step("SELECT address.city FROM {c}.shop.orders WHERE id = 11", [["Nuuk"]]),
    Step("ALTER TABLE {c}.shop.orders DROP COLUMN address"),
    Step("COMMENT ON TABLE {c}.shop.orders IS 'what was ordered'"),
    Step("COMMENT ON COLUMN {c}.shop.orders.remark IS 'free text'"),
    Step(
        "SELECT column_name, data_type FROM {c}.information_schema.columns "
        "WHERE table_schema = 'shop' AND table_name = 'orders' ORDER BY ordinal_position",
        [
            ["id", "bigint"],
            ["customer", "varchar"],
            ["amount", "bigint"],
            ["day", "date"],
            ["remark", "varchar"],
        ],
    ),
    Step("ALTER TABLE {c}.shop.orders SET PROPERTIES partitioning = ARRAY['month(day)']"),
    Step("INSERT INTO {c}.shop.orders VALUES (12, 'Flo', 1, DATE '2027-01-05', NULL)", [[1]]),
    Step("ALTER TABLE {c}.shop.orders SET PROPERTIES partitioning = ARRAY['day', 'truncate(customer, 1)']"),
    Step("INSERT INTO {c}.shop.orders VALUES (13, 'Gus', 2, DATE '2027-01-06', NULL)", [[1]]),
    Step(
        "SELECT array_agg(id ORDER BY id) FROM {c}.shop.orders WHERE day >= DATE '2027-01-01'", [[[12, 13]]]
    ),
    Step("ALTER TABLE {c}.shop.parts EXECUTE optimize WHERE day >= DATE '2026-12-01'"),
)

TIME_TRAVEL = (
    Step("SELECT count(*), sum(amount) FROM {c}.shop.orders FOR VERSION AS OF {first}", [[3, 60]]),
    Step("SELECT count(*) FROM {c}.shop.orders FOR TIMESTAMP AS OF TIMESTAMP '{moment}'", [[3]]),
    Step("SELECT count(*) FROM {c}.shop.orders FOR VERSION AS OF BIGINT '1'", fails="does not exist"),
    Step("SELECT count(*) FROM {c}_now.shop.orders", [[8]]),
    Step("INSERT INTO {c}.shop.orders (id) VALUES 99", [[1]]),
    Step("SELECT count(*) FROM {c}.shop.orders", [[9]]),
    Step("SELECT count(*) FROM {c}_now.shop.orders", [[8]]),
    Step("INSERT INTO {c}_now.shop.orders (id) VALUES 100", fails="main@"),
    Step(
        'SELECT snapshot_id FROM {c}.shop."orders$snapshots" ORDER BY committed_at DESC OFFSET 1 LIMIT 1',
        name="last",
    ),
    Step("ALTER TABLE {c}.shop.orders EXECUTE rollback_to_snapshot({last})"),
    Step("SELECT count(*) FROM {c}.shop.orders", [[8]]),
)

METADATA_TABLES = (
    Step('SELECT count(*) > 8 FROM {c}.shop."orders$history"', [[True]]),
    Step('SELECT count(DISTINCT operation) > 1 FROM {c}.shop."orders$snapshots"', [[True]]),
    Step('SELECT count(*) > 1 FROM {c}.shop."orders$files"', [[True]]),
    Step('SELECT count(*) > 1 FROM {c}.shop."orders$manifests"', [[True]]),
    Step('SELECT sum(record_count) FROM {c}.shop."parts$partitions"', [[4]]),
    Step('SELECT name, type FROM {c}.shop."orders$refs"', [["main", "BRANCH"]]),
    Step("SELECT value FROM {c}.shop.\"orders$properties\" WHERE key = 'comment'", [["what was ordered"]]),
    Step('SELECT count(*) > 8 FROM {c}.shop."orders$metadata_log_entries"', [[True]]),
    Step('SELECT count(*) > 1 FROM {c}.shop."parts$entries"', [[True]]),
    Step('SELECT count(DISTINCT "$path") > 1 FROM {c}.shop.orders', [[True]]),
)

VIEWS = (
    Step("CREATE VIEW {c}.shop.big AS SELECT id FROM {c}.shop.orders WHERE amount > 80"),
    Step("SELECT * FROM {c}.shop.big ORDER BY id", [[9], [11]]),
    Step("CREATE OR REPLACE VIEW {c}.shop.big AS SELECT id, amount FROM {c}.shop.orders WHERE amount = 90"),
    Step("SELECT * FROM {c}.shop.big", [[9, 90]]),
    Step("COMMENT ON VIEW {c}.shop.big IS 'large orders'"),
    Step("SELECT table_name FROM {c}.information_schema.views WHERE table_schema = 'shop'", [["big"]]),
    Step("ALTER VIEW {c}.shop.big RENAME TO {c}.shop.large"),
    Step("SELECT id FROM {c}.shop.large", [[9]]),
    Step("DROP VIEW {c}.shop.large"),
    Step("SELECT * FROM {c}.shop.large", fails="does not exist"),
)

MAINTENANCE = (
    Step("ANALYZE {c}.shop.orders"),
    Step("SHOW STATS FOR {c}.shop.orders"),
    Step("ALTER TABLE {c}.shop.orders EXECUTE drop_extended_stats"),
    Step("ALTER TABLE {c}.shop.orders EXECUTE optimize"),
    Step("ALTER TABLE {c}.shop.parts EXECUTE optimize_manifests"),
    Step("SELECT count(*) FROM {c}.shop.parts", [[4]]),
    Step("ALTER TABLE {c}.shop.orders EXECUTE expire_snapshots(retention_threshold => '0s')"),
    Step('SELECT count(*) FROM {c}.shop."orders$snapshots"', [[1]]),
    Step("ALTER TABLE {c}.shop.orders EXECUTE remove_orphan_files(retention_threshold => '0s')"),
    Step("SELECT count(*), sum(amount) FROM {c}.shop.orders", [[8, 5000000163]]),
)

NAMES_AND_DROPS = (
    Step("ALTER TABLE {c}.shop.parts RENAME TO {c}.shop.pieces"),
    Step("SELECT count(*) FROM {c}.shop.pieces", [[4]]),
    Step(
        "SELECT regexp_extract(\"$path\", '^(.*)/data/', 1) FROM {c}.shop.pieces LIMIT 1",
        name="pieces_location",
    ),
    # Without the name of the file Trino lists the folder, and calls local files local:///… then.
    Step(
        "SELECT regexp_extract(file, '[^/]+$') FROM {c}.shop.\"pieces$metadata_log_entries\" "
        "ORDER BY timestamp DESC LIMIT 1",
        name="pieces_metadata",
    ),
    Step("CALL {c}.system.unregister_table('shop', 'pieces')"),
    Step("SELECT * FROM {c}.shop.pieces", fails="does not exist"),
    Step("CALL {c}.system.register_table('shop', 'pieces', '{pieces_location}', '{pieces_metadata}')"),
    Step("SELECT count(*) FROM {c}.shop.pieces", [[4]]),
    Step("DROP SCHEMA {c}.shop", fails="non-empty"),
    Step('SELECT "$path" FROM {c}.shop.orders LIMIT 1', name="dropped_file"),
    Step("DROP TABLE {c}.shop.orders"),
    Step("SELECT * FROM {c}.shop.orders", fails="does not exist"),
    Step("DROP TABLE IF EXISTS {c}.shop.orders"),
    Step("DROP SCHEMA {c}.shop CASCADE"),
    Step("SHOW SCHEMAS FROM {c} LIKE 'shop'", []),
)

STEPS = (
    *SCHEMAS,
    *ROWS,
    *CREATED_FROM_QUERIES,
    *EVOLUTION,
    *TIME_TRAVEL,
    *METADATA_TABLES,
    *VIEWS,
    *MAINTENANCE,
    *NAMES_AND_DROPS,
)

# With tokens: the reader sees what the writer made, and may not change it.
ROLE_STEPS = (
    Step("CREATE SCHEMA {c}.vault"),
    Step("CREATE TABLE {c}.vault.t AS SELECT 1 AS id", [[1]]),
    Step("SELECT id FROM {c}_reader.vault.t", [[1]]),
    Step("INSERT INTO {c}_reader.vault.t VALUES 2", fails="requires the role writer"),
    Step("DROP TABLE {c}_reader.vault.t", fails="requires the role writer"),
    Step("SELECT id FROM {c}_reader.vault.t", [[1]]),
    Step("DROP TABLE {c}.vault.t"),
    Step("DROP SCHEMA {c}.vault"),
)
