"""`dmctl binlog skip|replace|inject|revert|list`, and DM's older `handle-error`."""

from __future__ import annotations

import click

from shardmerge.ctl import render
from shardmerge.ctl.files import task_name
from shardmerge.ctl.options import shared
from shardmerge.ctl.session import Session
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.binlog_place import parse_binlog_place

_Op = pb.HandleBinlogRequest

_SQL = {"ignore_unknown_options": True}
"""A statement may be given without quotation marks, as to DM's dmctl: its "-1" or "--" is not an option."""


def _place(_: click.Context, __: click.Parameter, text: str) -> str:
    if text and parse_binlog_place(text) is None:
        raise click.BadParameter(f"{text!r} is no position: give FILE:POS, such as mysql-bin.000001:1234")
    return text


_PLACE = click.option(
    "-b",
    "--binlog-pos",
    default="",
    metavar="FILE:POS",
    callback=_place,
    help="position of the statement  [where the task has stopped]",
)


def _handle(command: str, op: pb.HandleBinlogRequest.Op, task: str, binlog_pos: str, sqls: str = "") -> int:
    session = Session.current()
    request = pb.HandleBinlogRequest(
        op=op, task=task_name(task), sources=session.settings.sources, binlog_pos=binlog_pos, sqls=sqls
    )
    answer = session.call(command, lambda master: master.HandleBinlog, request)
    return session.show(command, answer, lambda: render.tables.handle_binlog(answer))


@click.group("binlog")
def binlog() -> None:
    """Skip, replace or extend one statement of a source's binlog, for example the one a task has stopped before.

    The structures of the shard tables follow the source in any case; the override decides what runs at the target.
    """


@binlog.command("skip", short_help="skip a statement, or the rows of one event")
@click.argument("task", metavar="TASK|FILE")
@_PLACE
@shared()
def skip(task: str, binlog_pos: str) -> int:
    """Skip the statement: do not run it at the target.

    With exactly the position of a row event: skip its rows, which are recorded (`binlog list`).

    \b
    Example:
        dmctl binlog skip merge -s mysql-01
    """
    return _handle("binlog skip", _Op.OP_SKIP, task, binlog_pos)


@binlog.command("replace", context_settings=_SQL, short_help="run other statements instead of it")
@click.argument("task", metavar="TASK|FILE")
@click.argument("sqls", nargs=-1, required=True, metavar="SQL[;SQL…]")
@_PLACE
@shared()
def replace(task: str, sqls: tuple[str, ...], binlog_pos: str) -> int:
    """Run other statements at the target instead of the statement; they name the tables as at the source.

    \b
    Example:
        dmctl binlog replace merge "ALTER TABLE shop_01.orders ADD COLUMN note TEXT" -s mysql-01
    """
    return _handle("binlog replace", _Op.OP_REPLACE, task, binlog_pos, " ".join(sqls))


@binlog.command("inject", context_settings=_SQL, short_help="run other statements before it")
@click.argument("task", metavar="TASK|FILE")
@click.argument("sqls", nargs=-1, required=True, metavar="SQL[;SQL…]")
@_PLACE
@shared()
def inject(task: str, sqls: tuple[str, ...], binlog_pos: str) -> int:
    """Run other statements at the target, and then the statement; they name the tables as at the source.

    \b
    Example:
        dmctl binlog inject merge "DROP INDEX by_note ON shop_01.orders" -s mysql-01 -b mysql-bin.000007:4711
    """
    return _handle("binlog inject", _Op.OP_INJECT, task, binlog_pos, " ".join(sqls))


@binlog.command("revert", short_help="remove the override of a statement")
@click.argument("task", metavar="TASK|FILE")
@_PLACE
@shared()
def revert(task: str, binlog_pos: str) -> int:
    """Remove the override of a statement that the task has not passed yet.

    \b
    Example:
        dmctl binlog revert merge -b mysql-bin.000007:4711 -s mysql-01
    """
    return _handle("binlog revert", _Op.OP_REVERT, task, binlog_pos)


@binlog.command("list", short_help="show the overrides")
@click.argument("task", metavar="TASK|FILE")
@click.option(
    "-b", "--binlog-pos", default="", metavar="FILE:POS", callback=_place, help="only of the statement at this position"
)
@shared()
def show(task: str, binlog_pos: str) -> int:
    """Show the overrides of the task's statements, and the rows that were skipped.

    \b
    Example:
        dmctl binlog list merge
    """
    return _handle("binlog list", _Op.OP_LIST, task, binlog_pos)


@click.command("handle-error", context_settings=_SQL)
@click.argument("task", metavar="TASK|FILE")
@click.argument("op", type=click.Choice(["skip", "replace", "revert"]))
@click.argument("sqls", nargs=-1)
@_PLACE
@shared()
def handle_error(task: str, op: str, sqls: tuple[str, ...], binlog_pos: str) -> int:
    """DM's older spelling of `binlog`.

    \b
    Example:
        dmctl handle-error merge skip -s mysql-01
    """
    ops = {"skip": _Op.OP_SKIP, "replace": _Op.OP_REPLACE, "revert": _Op.OP_REVERT}
    return _handle("handle-error", ops[op], task, binlog_pos, " ".join(sqls))
