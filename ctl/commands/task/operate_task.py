"""`dmctl stop-task`, `pause-task`, `resume-task`."""

from __future__ import annotations

import click

from shardmerge.ctl import render
from shardmerge.ctl.files import config_file, is_file_argument, task_name
from shardmerge.ctl.options import shared
from shardmerge.ctl.session import Session
from shardmerge.proto import master_pb2 as pb


def _operate(command: str, op: pb.OperateTaskRequest.Op, task: str | None, *, remove_meta: bool = False) -> int:
    session = Session.current()
    if task is None and not session.settings.sources:
        raise click.UsageError(f"{command} needs a task, or -s: then it means every task of those sources")
    request = pb.OperateTaskRequest(
        op=op,
        name=task_name(task) if task is not None else "",
        sources=session.settings.sources,
        remove_meta=remove_meta,
        file=config_file(task) if remove_meta and task is not None and is_file_argument(task) else None,
    )
    answer = session.call(command, lambda master: master.OperateTask, request)
    return session.show(command, answer, lambda: render.tables.operate_task(answer))


# DM's dmctl sends subtasks in batches; here one transaction holds them all.
_batch_size = click.option("--batch-size", type=int, hidden=True, expose_value=False)


@click.command("stop-task")
@click.argument("task", metavar="[TASK|FILE]", required=False)
@click.option(
    "--remove-meta",
    is_flag=True,
    help="also remove the task's records at the target, those of all of its sources: start-task begins with an empty "
    "history; the rows stay, and the answer names their tables; a task that is stopped already needs its FILE",
)
@_batch_size
@shared()
def stop_task(task: str | None, *, remove_meta: bool) -> int:
    """Stop a task and forget it; its rows and checkpoints at the target stay.

    \b
    Example:
        dmctl stop-task merge
    """
    return _operate("stop-task", pb.OperateTaskRequest.OP_STOP, task, remove_meta=remove_meta)


@click.command("pause-task")
@click.argument("task", metavar="[TASK|FILE]", required=False)
@_batch_size
@shared()
def pause_task(task: str | None) -> int:
    """Pause a task after its last committed batch. The answer has how long it may stay paused, for each source.

    \b
    Example:
        dmctl pause-task merge -s mysql-01
    """
    return _operate("pause-task", pb.OperateTaskRequest.OP_PAUSE, task)


@click.command("resume-task")
@click.argument("task", metavar="[TASK|FILE]", required=False)
@_batch_size
@shared()
def resume_task(task: str | None) -> int:
    """Resume a paused task, also one that an error has paused.

    \b
    Example:
        dmctl resume-task merge
    """
    return _operate("resume-task", pb.OperateTaskRequest.OP_RESUME, task)
