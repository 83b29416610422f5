"""`dmctl quarantine list|retry|drop`: rows that the target refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ctl import held_table
from ctl.files import task_name
from ctl.options import shared
from ctl.session import Session
from proto import master_pb2 as pb
from proto import worker_pb2

Command = TypeVar("Command", bound=Callable[..., Any])


def _choice(command: Command) -> Command:
    """Which held keys are meant."""
    for option in (
        click.option(
            "-k", "--key", default="", metavar="KEY", help="only this key, as it is listed, or its values alone"
        ),
        click.option("-t", "--table", default="", metavar="SCHEMA.TABLE", help="only keys of this target table"),
        click.argument("task", metavar="TASK|FILE"),
    ):
        command = option(command)
    return command


def _operate(name: str, op: worker_pb2.QuarantineOp, task: str, table: str, key: str) -> int:
    session = Session.current()
    request = pb.QuarantineRequest(op=op, task=task_name(task), sources=session.settings.sources, table=table, key=key)
    answer = session.call(name, lambda master: master.Quarantine, request)
    return session.show(name, answer, lambda: held_table.held(answer))


@click.group("quarantine", short_help="rows that the target refused")
def quarantine() -> None:
    """Rows that the target refused under `on-row-error: quarantine`: held with all later changes of their keys."""


@quarantine.command("list", short_help="show which keys are held, and why")
@_choice
@shared()
def show(task: str, table: str, key: str) -> int:
    """Show which keys are held, since when, with how many changes, and why the target refused the first of them.

    \b
    Example:
        dmctl quarantine list merge
    """
    return _operate("quarantine list", worker_pb2.QUARANTINE_OP_LIST, task, table, key)


@quarantine.command("retry", short_help="apply what is held")
@_choice
@shared()
def retry(task: str, table: str, key: str) -> int:
    """Apply what is held, once the target is mended. What it refuses again stays, with the new reason.

    \b
    Example:
        dmctl quarantine retry merge --table shop.orders
    """
    return _operate("quarantine retry", worker_pb2.QUARANTINE_OP_RETRY, task, table, key)


@quarantine.command("drop", short_help="give up what is held")
@_choice
@click.option("--all", "everything", is_flag=True, help="give up all keys: needed without --table and --key")
@shared()
def drop(task: str, table: str, key: str, *, everything: bool) -> int:
    """Give up what is held: it will not be applied. The changes are recorded; `binlog list` shows them.

    \b
    Example:
        dmctl quarantine drop merge -s mysql-01 --table shop.orders --key 4711
    """
    if not (table or key or everything):
        raise click.UsageError("quarantine drop needs --table or --key, or --all")
    return _operate("quarantine drop", worker_pb2.QUARANTINE_OP_DROP, task, table, key)
