"""`dmctl top`: shows all tasks live, the worst first."""

from __future__ import annotations

import sys

import click

from shardmerge.ctl.options import SecondsRange, shared
from shardmerge.ctl.session import Session
from shardmerge.proto import master_pb2 as pb


@click.command("top")
@click.option(
    "--interval",
    type=SecondsRange(0.2, 3600),
    default=2.0,
    metavar="SECONDS",
    help="time between refreshes, over which the main cause is measured  [2]",
)
@click.option("--once", is_flag=True, help="show the tasks once; always so in a pipe")
@shared()
def top(interval: float, *, once: bool) -> int:
    """Show every task with its lag, its rate and the main cause of its time, the worst first, until Ctrl-C.

    Each refresh is one call of each worker. With -s only the tasks of these sources, as far as they run there.

    \b
    Example:
        dmctl top --interval 5
    """
    from shardmerge.ctl.watch import top as watch_top

    session = Session.current()

    def ask(timeout: float | None) -> pb.OverviewResponse:
        request = pb.OverviewRequest(sources=session.settings.sources)
        return session.call("top", lambda master: master.Overview, request, timeout=timeout)

    return watch_top.run(session, ask, interval=interval, once=once or not sys.stdout.isatty())
