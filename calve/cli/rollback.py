"""`calve rollback`."""

from __future__ import annotations

import click

from calve.cli.connection import MomentType, lake_options
from calve.cli.output import moment_text
from calve.client import Lake
from calve.client.times import Moment

SHOWN_MAX = 10  # snapshots


@click.command()
@click.argument("table")
@click.option("--to", type=MomentType(), metavar="MOMENT", help="The moment to go back to.")
@click.option("--snapshot", "snapshot_id", type=int, metavar="ID", help="The snapshot to go back to.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@lake_options
def command(lake: Lake, table: str, to: Moment | None, snapshot_id: int | None, yes: bool) -> int:
    """Set a table back to a moment or a snapshot.

    It lists what it will undo, and asks for confirmation. The rollback is a new commit: the history and
    all snapshots stay, so it can be undone.

    \b
    Examples:
      calve rollback shop.orders --to "5 minutes ago"
      calve rollback shop.orders --snapshot 4358109269898923 --yes
    """
    if (to is None) == (snapshot_id is None):
        raise click.UsageError("Give --to or --snapshot, one of them.")
    found = lake.table(table)
    planned = found.rollback_to(to, snapshot_id=snapshot_id, dry_run=True)
    if not planned["undone"] and planned["snapshot_id"] == planned["previous_snapshot_id"]:
        print(f"{found.name} has the snapshot {planned['snapshot_id']} already: nothing to do.")
        return 0
    count = len(planned["undone"])
    print(f"This undoes {count:,} snapshot{'s' if count != 1 else ''} of {found.name}:")
    for one in planned["undone"][:SHOWN_MAX]:
        records = one["summary"].get("added-records", "0")
        print(
            f"  {one['snapshot_id']}  {moment_text(one['time'])}  {one['operation']}, {records} records added"
        )
    if count > SHOWN_MAX:
        oldest = moment_text(planned["undone"][-1]["time"])
        print(f"  and {count - SHOWN_MAX:,} older ones, back to {oldest}")
    if planned["notice"]:
        print(f"{planned['notice'].rstrip('.')}.")
    if not yes and not _confirmed(f"Set {found.name} back to snapshot {planned['snapshot_id']}?"):
        print("Nothing was changed.")
        return 1
    # The snapshot, not the moment: what was shown is what is done.
    done = found.rollback_to(snapshot_id=planned["snapshot_id"])
    print(f"{found.name} is at snapshot {done['snapshot_id']} again, by commit {done['number']}.")
    return 0


def _confirmed(question: str) -> bool:
    try:
        return click.confirm(question)
    except click.Abort:  # Ctrl-C, or a script that does not say --yes
        print()
        return False
