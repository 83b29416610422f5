"""`dmctl check-task`: would this task run?"""

from __future__ import annotations

import click

from ctl import as_table
from ctl.files import config_file
from ctl.options import shared
from ctl.session import Session
from proto import errors
from proto import master_pb2 as pb


def refuse_start_time(start_time: str | None) -> None:
    """A start by wall-clock time is DM's; it is never silently left out."""
    if start_time is not None:
        raise errors.ctl.NOT_SUPPORTED(
            what="--start-time",
            instead="Give the start in the task file: meta: {binlog-name, binlog-pos} or binlog-gtid per source.",
        )


@click.command("check-task", short_help="run a task file's pre-checks")
@click.argument("file", metavar="FILE")
@click.option("-e", "--error", "max_errors", type=click.IntRange(0), default=10, help="show so many failures  [10]")
@click.option("-w", "--warn", "max_warnings", type=click.IntRange(0), default=10, help="show so many warnings  [10]")
@click.option("--start-time", hidden=True)
@shared()
def check_task(file: str, max_errors: int, max_warnings: int, start_time: str | None) -> int:
    """Run every pre-check of a task file; nothing is started. Exit code 1 if a check fails."""
    refuse_start_time(start_time)
    request = pb.CheckTaskRequest(file=config_file(file))
    session = Session.current()
    answer = session.call("check-task", lambda master: master.CheckTask, request)
    return session.show(
        "check-task",
        answer,
        lambda: as_table.check_task(answer, max_errors=max_errors, max_warnings=max_warnings),
    )
