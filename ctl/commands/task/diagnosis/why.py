"""`dmctl why`: shows what a task spends its time on, what it waits for, and what to do."""

from __future__ import annotations

import click

from shardmerge.ctl.files import task_name
from shardmerge.ctl.options import SecondsRange, shared
from shardmerge.ctl.session import Session
from shardmerge.proto import master_pb2 as pb


@click.command("why")
@click.argument("task", metavar="TASK|FILE")
@click.option(
    "--seconds",
    type=SecondsRange(0.5, 30),
    default=3.0,
    metavar="SECONDS",
    help="over how long the workers measure  [3]",
)
@click.option("--all", "all_findings", is_flag=True, help="every finding, not only the first ones")
@shared()
def why(task: str, seconds: float, *, all_findings: bool) -> int:
    """Show where the time of a task goes, what waits for what, and what to do: the largest cause first.

    The workers measure for some seconds. Locks of the target are shown with the session that holds them, as far as the
    task's account may see it.

    \b
    Example:
        dmctl why merge
    """
    from shardmerge.ctl.render.diagnosis import findings

    session = Session.current()
    request = pb.DiagnoseRequest(task=task_name(task), sources=session.settings.sources, seconds=seconds)
    answer = session.call("why", lambda master: master.Diagnose, request)
    return session.show("why", answer, lambda: findings.screen(answer, all_findings=all_findings))
