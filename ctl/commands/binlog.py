"""`dmctl binlog skip|replace|inject|revert|list`, and DM's older `handle-error`."""

from __future__ import annotations

import click

from ctl import as_table
from ctl.files import task_name
from ctl.options import shared
from ctl.session import Session
from proto import master_pb2 as pb

_Op = pb.HandleBinlogRequest

_PLACE = click.option(
    "-b", "--binlog-pos", default="", metavar="FILE:POS", help="where the statement is  [where the task stands]"
)


def _handle(command: str, op: pb.HandleBinlogRequest.Op, task: str, binlog_pos: str, sqls: str = "") -> int:
    session = Session.current()
    request = pb.HandleBinlogRequest(
        op=op, task=task_name(task), sources=session.settings.sources, binlog_pos=binlog_pos, sqls=sqls
    )
    answer = session.call(command, lambda master: master.HandleBinlog, request)
    return session.show(command, answer, lambda: as_table.handle_binlog(answer))


@click.group("binlog", short_help="skip or replace a statement that stops a task")
def binlog() -> None:
    """Say what becomes of one statement of a source's binlog, such as the one before which a task stands.

    The structures of the shard tables follow the source in any case; this is about what runs at the target.
    """


@binlog.command("skip", short_help="go past a statement without running it, or past the rows of one event")
@click.argument("task", metavar="TASK|FILE")
@_PLACE
@shared()
def skip(task: str, binlog_pos: str) -> int:
    """Go past the statement without running it at the target.

    With exactly the place of a row event: go past its rows, which are recorded (`binlog list`).

    \b
    Example:
        dmctl binlog skip merge -s mysql-01
    """
    return _handle("binlog skip", _Op.OP_SKIP, task, binlog_pos)


@binlog.command("replace", short_help="run other statements in its place")
@click.argument("task", metavar="TASK|FILE")
@click.argument("sqls", metavar="SQL[;SQL…]")
@_PLACE
@shared()
def replace(task: str, sqls: str, binlog_pos: str) -> int:
    """Run other statements at the target in the statement's place; they name the tables as at the source.

    \b
    Example:
        dmctl binlog replace merge "ALTER TABLE shop_01.orders ADD COLUMN note TEXT" -s mysql-01
    """
    return _handle("binlog replace", _Op.OP_REPLACE, task, binlog_pos, sqls)


@binlog.command("inject", short_help="run other statements before it")
@click.argument("task", metavar="TASK|FILE")
@click.argument("sqls", metavar="SQL[;SQL…]")
@_PLACE
@shared()
def inject(task: str, sqls: str, binlog_pos: str) -> int:
    """Run other statements at the target, and then the statement; they name the tables as at the source.

    \b
    Example:
        dmctl binlog inject merge "DROP INDEX by_note ON shop_01.orders" -s mysql-01 -b mysql-bin.000007:4711
    """
    return _handle("binlog inject", _Op.OP_INJECT, task, binlog_pos, sqls)


@binlog.command("revert", short_help="take back what was said of it")
@click.argument("task", metavar="TASK|FILE")
@_PLACE
@shared()
def revert(task: str, binlog_pos: str) -> int:
    """Take back what was said of a statement that the task has not passed yet.

    \b
    Example:
        dmctl binlog revert merge -b mysql-bin.000007:4711 -s mysql-01
    """
    return _handle("binlog revert", _Op.OP_REVERT, task, binlog_pos)


@binlog.command("list", short_help="show what was said")
@click.argument("task", metavar="TASK|FILE")
@click.option("-b", "--binlog-pos", default="", metavar="FILE:POS", help="only of the statement there")
@shared()
def show(task: str, binlog_pos: str) -> int:
    """Show what was said of the task's statements, and which rows were skipped.

    \b
    Example:
        dmctl binlog list merge
    """
    return _handle("binlog list", _Op.OP_LIST, task, binlog_pos)


@click.command("handle-error", hidden=True)
@click.argument("task", metavar="TASK|FILE")
@click.argument("op", type=click.Choice(["skip", "replace", "revert"]))
@click.argument("sqls", default="")
@_PLACE
@shared()
def handle_error(task: str, op: str, sqls: str, binlog_pos: str) -> int:
    """DM's older spelling of `binlog`.

    \b
    Example:
        dmctl handle-error merge skip -s mysql-01
    """
    ops = {"skip": _Op.OP_SKIP, "replace": _Op.OP_REPLACE, "revert": _Op.OP_REVERT}
    return _handle("handle-error", ops[op], task, binlog_pos, sqls)
