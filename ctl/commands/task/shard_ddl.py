"""`dmctl shard-ddl preview`: a dry run of a DDL on shard tables."""

from __future__ import annotations

import click

from shardmerge.ctl import render
from shardmerge.ctl.files import task_name
from shardmerge.ctl.options import shared
from shardmerge.ctl.session import Session
from shardmerge.proto import master_pb2 as pb


@click.group("shard-ddl")
def shard_ddl() -> None:
    """Dry run of a DDL on shard tables; for tables that are parked already see `shard-ddl-lock`."""


@shard_ddl.command("preview", short_help="show the effect of a DDL without running it")
@click.argument("task", metavar="TASK|FILE")
@click.argument("statement", metavar="SQL")
@click.option(
    "-t", "--table", "tables", multiple=True, metavar="SCHEMA.TABLE", help="the statement is for this shard table"
)
@shared()
def preview(task: str, statement: str, tables: tuple[str, ...]) -> int:
    """Show the effect of an ALTER TABLE, CREATE INDEX or DROP INDEX on shard tables at the target, which tables would
    have to wait for which, and which data is at risk. Nothing runs, at no source and at no target table.

    The statement is for the table that it names, as schema.table at its source; with --table for those tables, one
    after the other, each after the effect of the previous ones. A table of that name at several sources: at all of
    them, or at those of -s.

    \b
    Example:
        dmctl shard-ddl preview merge "ALTER TABLE orders DROP COLUMN note" -t shop_01.orders -t shop_02.orders
    """
    session = Session.current()
    request = pb.PreviewDDLRequest(
        task=task_name(task), statement=statement, tables=tables, sources=session.settings.sources
    )
    answer = session.call("shard-ddl preview", lambda master: master.PreviewDDL, request)
    return session.show("shard-ddl preview", answer, lambda: render.shard_ddl.previewed(answer))
