"""`dmctl rules`: shows where the rows of each source table go, and why."""

from __future__ import annotations

import re

import click

from shardmerge.ctl import render
from shardmerge.ctl.files import config_file, is_file_argument
from shardmerge.ctl.options import shared
from shardmerge.ctl.session import Session
from shardmerge.proto import errors, worker_pb2
from shardmerge.proto import master_pb2 as pb

_PART = r"(?:`((?:[^`]|``)+)`|([^`.]+))"
_NAME = re.compile(rf"{_PART}\.{_PART}")


@click.command("rules")
@click.argument("task", metavar="TASK|FILE")
@click.argument("tables", metavar="[SCHEMA.TABLE]…", nargs=-1)
@shared()
def rules(task: str, tables: tuple[str, ...]) -> int:
    """Show for each source table whether it takes part, where its rows go, and which rule decides; nothing runs.

    With a file: by the rules of the file, whatever task runs. A named table need not exist yet: then only the rules are
    applied.

    \b
    Example:
        dmctl rules merge.yaml shop_01.orders -s mysql-01
    """
    session = Session.current()
    request = rules_request(session, task, tables)
    answer = session.call("rules", lambda master: master.ExplainRules, request)
    return session.show("rules", answer, lambda: render.rules_table.explained(answer, in_full=bool(tables)))


def rules_request(session: Session, task: str, tables: tuple[str, ...]) -> pb.ExplainRulesRequest:
    """The request about the tables of a task, which is named by its name or its file. Raises TABLE_NAME, and what
    reading the file raises."""
    by_file = is_file_argument(task)
    return pb.ExplainRulesRequest(
        task="" if by_file else task,
        file=config_file(task) if by_file else None,
        tables=[table_name(each) for each in tables],
        sources=session.settings.sources,
    )


def table_name(text: str) -> worker_pb2.ShardTableName:
    """``schema.table``, each part as it is or in backticks. Raises TABLE_NAME."""
    found = _NAME.fullmatch(text)
    if found is None:
        raise errors.ctl.TABLE_NAME(given=text)
    quoted_schema, schema, quoted_table, table = (part or "" for part in found.groups())
    return worker_pb2.ShardTableName(
        schema=schema or quoted_schema.replace("``", "`"), table=table or quoted_table.replace("``", "`")
    )
