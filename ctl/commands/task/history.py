"""`dmctl history`: what happened to a task."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime

import click

from shardmerge.ctl.files import task_name
from shardmerge.ctl.options import shared
from shardmerge.ctl.session import Session
from shardmerge.proto import master_pb2 as pb

_KINDS = ("stage", "error", "ddl", "command", "binding", "sample")

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_PART = re.compile(r"(\d{1,9})([smhdw])", re.ASCII)
_FORMS = 'a duration such as 30m, 12h, 2d or 1w, or a time such as "2026-01-02 03:04" (UTC without an offset)'


def since_of(text: str, now: float) -> float:
    """Unix seconds; at least 0. Raises ValueError.

    >>> since_of("1d12h", 200_000.0)
    70400.0
    """
    parts = list(_PART.finditer(text))
    if parts and "".join(part.group() for part in parts) == text:
        return max(0.0, now - sum(int(part[1]) * _UNITS[part[2]] for part in parts))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"must be {_FORMS}") from None
    return max(0.0, (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp())


def _since(context: click.Context, parameter: click.Parameter, text: str) -> float:
    if not text:
        return 0.0
    try:
        return since_of(text, time.time())
    except ValueError as error:
        raise click.BadParameter(str(error), context, parameter) from None


@click.command("history")
@click.argument("task", metavar="TASK|FILE")
@click.option("--since", default="", metavar="WHEN", callback=_since, help=f"{_FORMS}  [all that is kept]")
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
    from shardmerge.ctl.render.timeline import timeline, value

    session = Session.current()
    request = pb.HistoryRequest(
        task=task_name(task), since=since, sources=session.settings.sources, kinds=kinds, limit=limit
    )
    answer = session.call("history", lambda master: master.History, request)
    return session.show("history", answer, lambda: timeline(answer), lambda: value(answer))
