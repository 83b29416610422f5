"""`dmctl start-task`: begin to merge."""

from __future__ import annotations

import click

from ctl import as_table
from ctl.files import config_file
from ctl.options import ends, shared
from ctl.session import Session
from proto import master_pb2 as pb


@click.command("start-task", short_help="check a task file and start the task")
@click.argument("file", metavar="FILE")
@click.option(
    "--remove-meta",
    is_flag=True,
    help="forget what an earlier run of the task recorded at the target: it begins anew",
)
@ends
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
    return session.show("start-task", answer, lambda: as_table.start_task(answer))
