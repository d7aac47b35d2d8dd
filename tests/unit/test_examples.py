"""Every example of README and docs/ is run by a test, or is listed here with the reason why it is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients.page_runner import Block, blocks
from tests.harness.components import ROOT

RUN_LANGUAGES = ("bash", "python", "sql")
# The tests that run pages: tests/clients/test_pages.py, tests/contract/query/tables/test_page.py,
# tests/pipeline/test_pages.py, tests/pipeline/test_first_minutes.py, tests/pipeline/test_verification.py,
# tests/maintenance/test_pages.py.
RUN_PAGES = frozenset(
    {
        "README.md",
        "changes.md",
        "commands.md",
        "engines.md",
        "getting-started.md",
        "maintenance.md",
        "python.md",
        "query.md",
        "sources.md",
        "subscribe.md",
        "tables.md",
        "time-travel-and-transactions.md",
        "verification.md",
    }
)
NOT_RUN = {
    ("commands.md", "sh"): "for the files of a person's own shell, and for jq",
    ("debezium.md", "properties"): "tests/pipeline/test_debezium.py starts Debezium Server with these",
    (
        "engines.md",
        "properties",
    ): "Spark's are run; tests/clients/trino_server.py has Trino's",
    ("engines.md", "toml"): "settings, which tests/unit/test_settings.py reads",
    ("identity.md", "properties"): "tests/clients/test_credentials.py connects Spark so",
    ("identity.md", "python"): "tests/clients/test_credentials.py connects PyIceberg so",
    ("identity.md", "sh"): "tests/unit/identity/test_principal_command.py; a secret is printed once",
    ("identity.md", "sql"): "tests/clients/test_credentials.py connects DuckDB so",
    ("production.md", "bash"): "needs a PostgreSQL and a bucket of these names",
    ("python.md", "sh"): "installs packages",
    ("query.md", "json"): "an answer, not a request",
    ("reliability.md", "bash"): "runs the tests",
    ("settings.md", "toml"): "tests/unit/test_settings.py reads every setting",
    ("subscribe.md", "json"): "what a webhook receives, not a request",
    ("time-travel-and-transactions.md", "properties"): "run: they are for Spark",
    ("verification.md", "json"): "tests/pipeline/test_verification.py posts such a body",
}


def _examples() -> Iterator[Block]:
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        yield from blocks(page)


@pytest.mark.parametrize("block", list(_examples()), ids=lambda block: block.where)
def test_an_example_is_run_or_listed(block: Block) -> None:
    is_run = block.page in RUN_PAGES and block.language in RUN_LANGUAGES
    assert is_run or (block.page, block.language) in NOT_RUN


def test_the_list_has_no_more_than_there_is() -> None:
    found = {(block.page, block.language) for block in _examples()}
    assert set(NOT_RUN) <= found
    assert {page for page, _ in found} >= RUN_PAGES
