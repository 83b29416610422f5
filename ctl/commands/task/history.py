"""`dmctl history`: what happened to a task."""

from __future__ import annotations

import time

import click

from shardmerge.ctl.files import task_name
from shardmerge.ctl.options import shared
from shardmerge.ctl.render.task_history.period import FORMS, since_of
from shardmerge.ctl.session import Session
from shardmerge.proto import master_pb2 as pb

_KINDS = ("stage", "error", "ddl", "command", "binding", "sample")


def _since(context: click.Context, parameter: click.Parameter, text: str) -> float:
    if not text:
        return 0.0
    try:
        return since_of(text, time.time())
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from None


@click.command("history")
@click.argument("task", metavar="TASK|FILE")
@click.option("--since", default="", metavar="WHEN", callback=_since, help=f"{FORMS}  [all that is kept]")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice(_KINDS),
    help="only these; may be repeated; sample: lag and rate",
)
@click.option(
    "--limit",
    type=click.IntRange(0, 1_000_000),
    default=200,
    metavar="NUMBER",
    help="at most this number of entries, the newest; 0: all  [200]",
)
@shared()
def history(task: str, since: float, kinds: tuple[str, ...], limit: int) -> int:
    """Show what happened to a task in the last 30 days, the newest last: commands and who has given them, stages,
    errors, DDLs, workers of its sources; then its lag and rate.

    A task that was stopped keeps its history until it is 30 days old, and a new task of the same name continues it.

    \b
    Example:
        dmctl history merge --since 2d
        dmctl history merge --kind error --kind command -s mysql-01
    """
    from shardmerge.ctl.render.task_history.timeline import timeline, value

    session = Session.current()
    request = pb.HistoryRequest(
        task=task_name(task), since=since, sources=session.settings.sources, kinds=kinds, limit=limit
    )
    answer = session.call("history", lambda master: master.History, request)
    return session.show("history", answer, lambda: timeline(answer), lambda: value(answer))
