"""`dmctl schema`: shows the definitions of a task's target tables, and how the shard tables differ."""

from __future__ import annotations

import click

from shardmerge.ctl import render
from shardmerge.ctl.commands.task.rules import rules_request
from shardmerge.ctl.options import shared
from shardmerge.ctl.session import Session
from shardmerge.ctl.verdict import judge


@click.command("schema")
@click.argument("task", metavar="TASK|FILE")
@click.argument("tables", metavar="[SCHEMA.TABLE]…", nargs=-1)
@click.option("--foreign-keys", is_flag=True, help="the shard tables' foreign keys as SQL for the target")
@shared()
def schema(task: str, tables: tuple[str, ...], foreign_keys: bool) -> int:
    """Show for each target table its CREATE TABLE, as it exists or as the task would create it, and how the shard
    tables differ from it; nothing is created. Shard tables of a source with equal definitions are one line.

    With a file: by the rules of the file, whatever task runs. With tables: only these shard tables.

    --foreign-keys prints the statements that add the keys at a cut-over, each after a query that proves it: target
    tables get no foreign keys while a task writes to them. JSON always has them.

    \b
    Example:
        dmctl schema merge.yaml -s mysql-01
        dmctl schema merge --foreign-keys
    """
    session = Session.current()
    request = rules_request(session, task, tables)
    answer = session.call("schema", lambda master: master.ShowTargets, request)
    if foreign_keys and not session.is_json:
        # Lines that are wrapped would no longer be comments.
        print(render.definitions.foreign_keys_script(answer), flush=True)
        return session.conclude(judge("schema", answer))
    return session.show("schema", answer, lambda: render.definitions.targets(answer))
