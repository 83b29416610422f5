"""`dmctl check-task`, `start-task`, `stop-task`, `pause-task`, `resume-task`."""

from __future__ import annotations

import click

from shardmerge.ctl import render
from shardmerge.ctl.files import config_file, is_file_argument, task_name
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


@click.command("check-task")
@click.argument("file", metavar="FILE")
@click.option("-e", "--error", "max_errors", type=click.IntRange(0), default=10, help="the most failures to show  [10]")
@click.option(
    "-w", "--warn", "max_warnings", type=click.IntRange(0), default=10, help="the most warnings to show  [10]"
)
@click.option(
    "--prove-keys",
    is_flag=True,
    help="read all keys of the shard tables, not a sample, to prove that no two rows of a target have one key (see "
    "--rpc-timeout)",
)
@start_and_stop_options
@shared(by_source=False)
def check_task(
    file: str, max_errors: int, max_warnings: int, start_time: str, stop_at: str, *, prove_keys: bool
) -> int:
    """Run every pre-check of a task file; nothing is started. Exit code 1 if a check fails.

    \b
    Example:
        dmctl check-task merge.yaml
    """
    request = pb.CheckTaskRequest(file=config_file(file), start_time=start_time, stop_at=stop_at, prove_keys=prove_keys)
    session = Session.current()
    answer = session.call("check-task", lambda master: master.CheckTask, request)
    return session.show(
        "check-task",
        answer,
        lambda: render.tables.check_task(answer, max_errors=max_errors, max_warnings=max_warnings),
    )


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
