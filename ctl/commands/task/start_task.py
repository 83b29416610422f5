"""`dmctl start-task`: checks a task file and starts the task."""

from __future__ import annotations

import click

from shardmerge.ctl import render
from shardmerge.ctl.files import config_file
from shardmerge.ctl.options import shared, start_and_stop_options
from shardmerge.ctl.session import Session
from shardmerge.proto import master_pb2 as pb


@click.command("start-task")
@click.argument("file", metavar="FILE")
@click.option(
    "--remove-meta",
    is_flag=True,
    help="begin again: at the target, delete the records of an earlier run of these sources and the rows that "
    "`partition id` shows to be theirs; refused where rows of other sources cannot be distinguished",
)
@start_and_stop_options
@shared()
def start_task(file: str, start_time: str, stop_at: str, *, remove_meta: bool) -> int:
    """Check a task file and start the task, on all of its sources or on those of -s.

    \b
    Example:
        dmctl start-task merge.yaml
    """
    session = Session.current()
    request = pb.StartTaskRequest(
        file=config_file(file),
        sources=session.settings.sources,
        remove_meta=remove_meta,
        start_time=start_time,
        stop_at=stop_at,
    )
    answer = session.call("start-task", lambda master: master.StartTask, request)
    return session.show("start-task", answer, lambda: render.tables.start_task(answer))
