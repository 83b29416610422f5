"""`dmctl check-task`: runs the pre-checks of a task file."""

from __future__ import annotations

import click

from shardmerge.ctl import render
from shardmerge.ctl.files import config_file
from shardmerge.ctl.options import shared, start_and_stop_options
from shardmerge.ctl.session import Session
from shardmerge.proto import master_pb2 as pb


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
