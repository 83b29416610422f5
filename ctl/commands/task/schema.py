"""`dmctl schema`: shows the definitions of a task's target tables, and how the shard tables differ."""

from __future__ import annotations

import click

from shardmerge.ctl.commands.task.rules import rules_request
from shardmerge.ctl.options import shared
from shardmerge.ctl.render import targets_table
from shardmerge.ctl.session import Session


@click.command("schema", short_help="the target tables, and how the shard tables differ")
@click.argument("task", metavar="TASK|FILE")
@click.argument("tables", metavar="[SCHEMA.TABLE]…", nargs=-1)
@shared()
def schema(task: str, tables: tuple[str, ...]) -> int:
    """Show for each target table its CREATE TABLE, as it exists or as the task would create it, and how the shard
    tables differ from it; nothing is created. Shard tables of a source with equal definitions are one line.

    With a file: by the rules of the file, whatever task runs. With tables: only these shard tables.

    \b
    Example:
        dmctl schema merge.yaml -s mysql-01
    """
    session = Session.current()
    request = rules_request(session, task, tables)
    answer = session.call("schema", lambda master: master.ShowTargets, request)
    return session.show("schema", answer, lambda: targets_table.targets(answer))
