"""`dmctl binlog-schema list|update|delete`, and DM's older `operate-schema`."""

from __future__ import annotations

import click

from shardmerge.ctl import render
from shardmerge.ctl.files import read_text, task_name
from shardmerge.ctl.options import shared
from shardmerge.ctl.session import Session
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import worker_pb2

_HELP_OF_FLUSH = "accepted for compatibility with DM: the record is on disk when the command answers"
_HELP_OF_SYNC = "accepted for compatibility with DM: the locks of sharding DDLs use it when the task is resumed"


def _operate(
    command: str,
    op: worker_pb2.SchemaOp,
    task: str,
    database: str,
    table: str,
    schema: str = "",
    *,
    from_source: bool = False,
    from_target: bool = False,
) -> int:
    session = Session.current()
    request = pb.OperateSchemaRequest(
        op=op,
        task=task_name(task),
        sources=session.settings.sources,
        database=database,
        table=table,
        schema=schema,
        from_source=from_source,
        from_target=from_target,
    )
    answer = session.call(command, lambda master: master.OperateSchema, request)
    return session.show(command, answer, lambda: render.definitions.schemas(answer))


@click.group("binlog-schema")
def binlog_schema() -> None:
    """Show or replace the recorded structure of a shard table: its row events are read with it, and the DDL in the
    binlog changes it. Needed, for example, for a task that begins in the binlog before a change of the table.
    """


@binlog_schema.command("list", short_help="show what is recorded")
@click.argument("task", metavar="TASK|FILE")
@click.argument("database")
@click.argument("table")
@shared()
def show(task: str, database: str, table: str) -> int:
    """Show the shard table's CREATE TABLE as it is recorded, and that of its target table.

    \b
    Example:
        dmctl binlog-schema list merge shop_01 orders -s mysql-01
    """
    return _operate("binlog-schema list", worker_pb2.SCHEMA_OP_LIST, task, database, table)


@binlog_schema.command("update", short_help="record another structure")
@click.argument("task", metavar="TASK|FILE")
@click.argument("database")
@click.argument("table")
@click.argument("schema_file", default="", metavar="[SCHEMA-FILE]")
@click.option("--from-source", is_flag=True, help="the structure at the source now")
@click.option("--from-target", is_flag=True, help="the structure of the target table now")
@click.option("--flush", is_flag=True, help=_HELP_OF_FLUSH)
@click.option("--sync", is_flag=True, help=_HELP_OF_SYNC)
@shared()
def update(
    task: str,
    database: str,
    table: str,
    schema_file: str,
    *,
    from_source: bool,
    from_target: bool,
    flush: bool,
    sync: bool,
) -> int:
    """Record a structure for the shard table of a paused task: that of the file, which is one CREATE TABLE with any
    name, or the source's or the target's. The next row event is read with it.

    \b
    Example:
        dmctl binlog-schema update merge shop_01 orders orders-as-it-was.sql -s mysql-01
    """
    del flush, sync  # see their help
    if sum((bool(schema_file), from_source, from_target)) != 1:
        raise click.UsageError("give one of SCHEMA-FILE, --from-source and --from-target")
    schema = read_text(schema_file) if schema_file else ""
    return _operate(
        "binlog-schema update",
        worker_pb2.SCHEMA_OP_UPDATE,
        task,
        database,
        table,
        schema,
        from_source=from_source,
        from_target=from_target,
    )


@binlog_schema.command("delete", short_help="read the structure from the source again")
@click.argument("task", metavar="TASK|FILE")
@click.argument("database")
@click.argument("table")
@shared()
def delete(task: str, database: str, table: str) -> int:
    """Delete the recorded structure: when the task is resumed, it is read from the source again.

    \b
    Example:
        dmctl binlog-schema delete merge shop_01 orders -s mysql-01
    """
    return _operate("binlog-schema delete", worker_pb2.SCHEMA_OP_DELETE, task, database, table)


@click.command("operate-schema")
@click.argument("op", type=click.Choice(["get", "set", "remove"]))
@click.argument("task", metavar="TASK|FILE")
@click.argument("schema_file", default="")
@click.option("-d", "--database", required=True)
@click.option("-t", "--table", required=True)
@click.option("--flush", is_flag=True, help=_HELP_OF_FLUSH)
@click.option("--sync", is_flag=True, help=_HELP_OF_SYNC)
@shared()
def operate_schema(op: str, task: str, schema_file: str, database: str, table: str, *, flush: bool, sync: bool) -> int:
    """DM's older spelling of `binlog-schema`.

    \b
    Example:
        dmctl operate-schema get merge -s mysql-01 -d shop_01 -t orders
    """
    del flush, sync  # see their help
    if (op == "set") != bool(schema_file):
        raise click.UsageError("set needs a file with the CREATE TABLE, get and remove take none")
    ops = {
        "get": worker_pb2.SCHEMA_OP_LIST,
        "set": worker_pb2.SCHEMA_OP_UPDATE,
        "remove": worker_pb2.SCHEMA_OP_DELETE,
    }
    schema = read_text(schema_file) if schema_file else ""
    return _operate(f"operate-schema {op}", ops[op], task, database, table, schema)
