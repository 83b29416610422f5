"""`dmctl quarantine list|retry|drop`: rows that the target refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from shardmerge.ctl import render
from shardmerge.ctl.files import task_name
from shardmerge.ctl.options import shared
from shardmerge.ctl.session import Session
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import worker_pb2

Command = TypeVar("Command", bound=Callable[..., Any])


def _choice(command: Command) -> Command:
    """Add the options that select held keys."""
    for option in (
        click.option("-k", "--key", default="", metavar="KEY", help="only this key, as listed, or only its values"),
        click.option("-t", "--table", default="", metavar="SCHEMA.TABLE", help="only keys of this target table"),
        click.argument("task", metavar="TASK|FILE"),
    ):
        command = option(command)
    return command


def _operate(name: str, op: worker_pb2.QuarantineOp, task: str, table: str, key: str) -> int:
    session = Session.current()
    request = pb.QuarantineRequest(op=op, task=task_name(task), sources=session.settings.sources, table=table, key=key)
    answer = session.call(name, lambda master: master.Quarantine, request)
    return session.show(name, answer, lambda: render.tables.held(answer))


@click.group("quarantine")
def quarantine() -> None:
    """Rows that the target refused under `on-row-error: quarantine`: held with all later changes of their keys."""


@quarantine.command("list", short_help="show the held keys, and why")
@_choice
@shared()
def show(task: str, table: str, key: str) -> int:
    """Show the held keys, since when, with how many changes, and why the target refused the first of them.

    \b
    Example:
        dmctl quarantine list merge
    """
    return _operate("quarantine list", worker_pb2.QUARANTINE_OP_LIST, task, table, key)


@quarantine.command("retry", short_help="apply held changes")
@_choice
@shared()
def retry(task: str, table: str, key: str) -> int:
    """Apply the held changes, once the target is corrected. What it refuses again stays held, with the new reason.

    \b
    Example:
        dmctl quarantine retry merge --table shop.orders
    """
    return _operate("quarantine retry", worker_pb2.QUARANTINE_OP_RETRY, task, table, key)


@quarantine.command("drop", short_help="drop held changes")
@_choice
@click.option("--all", "all_keys", is_flag=True, help="drop all keys: needed without --table and --key")
@shared()
def drop(task: str, table: str, key: str, *, all_keys: bool) -> int:
    """Drop the held changes: they will not be applied. They are recorded; `binlog list` shows them.

    \b
    Example:
        dmctl quarantine drop merge -s mysql-01 --table shop.orders --key 4711
    """
    if not (table or key or all_keys):
        raise click.UsageError("quarantine drop needs --table or --key, or --all")
    return _operate("quarantine drop", worker_pb2.QUARANTINE_OP_DROP, task, table, key)
