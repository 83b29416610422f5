"""Plans a read at load(): asks each source for its tables and for the position at which all of them are read."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.worker.core.mysql.connection import ServerInfo, Session, rows, server_info, text_of
from shardmerge.worker.core.mysql.endpoint import Endpoint
from shardmerge.worker.core.mysql.information_schema import list_tables, read_tables
from shardmerge.worker.core.mysql.show_create import read_create_texts
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.sql.foreign_keys import cascading_keys
from shardmerge.worker.core.sql.table_text import UnreadableCreateTable
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.datasource.group_reader import file_made, why_gone
from shardmerge.worker.datasource.plan.fixed_position import FixedPosition
from shardmerge.worker.datasource.plan.read_plan import (
    ReadOptions,
    ReadPlan,
    ReadSource,
    SourcePlan,
    frame_columns,
    frame_schema,
    read_table,
    same_tables,
    unsupported_rule,
)
from shardmerge.worker.datasource.plan.where import condition_of
from shardmerge.worker.rules.rules import check_partitions
from shardmerge.worker.snapshot.source.chunk_source import source_session
from shardmerge.worker.snapshot.source.watermarks import low_watermark
from shardmerge.worker.snapshot.table_planner import is_versioned

_ATTEMPTS = 5
_NEEDED = (("binlog_format", "ROW"), ("binlog_row_image", "FULL"))


@dataclass(frozen=True, slots=True)
class _Found:
    source: ReadSource
    fixed: FixedPosition
    plans: tuple[TablePlan, ...]


def plan_read(options: ReadOptions) -> ReadPlan:
    """Raises the errors of proto/errors/read.py, of the rules and of the connections."""
    found = [_of_source(source, options) for source in options.sources]
    plans = [plan for each in found for plan in each.plans]
    check_partitions(plans)
    columns = frame_columns(plans, options.columns)
    names = [name for name, _ in columns]
    for plan in plans:
        by_name = {column.target_name.lower(): column for column in plan.columns}
        condition_of(options.where, [by_name[name.lower()] for name in names])  # refuses what cannot be compared
    return ReadPlan(
        number=uuid.uuid4().hex,
        sources=tuple(
            SourcePlan(
                each.source,
                each.fixed.position,
                each.fixed.made,
                tuple(read_table(number, plan, names) for number, plan in enumerate(each.plans)),
            )
            for each in found
        ),
        schema=frame_schema(columns, {each.source.source: each.fixed for each in found}),
        options=options,
    )


def _of_source(source: ReadSource, options: ReadOptions) -> _Found:
    endpoint = source.connection()
    with source_session(endpoint, source.source) as session:
        info = server_info(session)
        check_server(session, source.source)
        tables, position = tables_at(session, info, source, options)
        check_cascades(session, source.source, tables)
    plans = tuple(plan_table(number, table, source) for number, table in enumerate(tables))
    if source.fixed is None:
        return _Found(source, FixedPosition(position, _made(source.source, endpoint, position)), plans)
    _check_fixed(source.source, endpoint, source.fixed, position)
    return _Found(source, source.fixed, plans)


def _check_fixed(source: str, endpoint: Endpoint, fixed: FixedPosition, now: SourcePosition) -> None:
    """Raises ``read.BINLOG_GONE`` unless the position is one of this server, and every transaction before it is visible
    to a SELECT that starts now. That the tables had their present structure there is not checked here: a statement
    after the position is found when rows are read."""
    if not now.same_server(fixed.position):
        reason = "another server answers at the source's address"
        raise errors.read.BINLOG_GONE(source=source, position=fixed.position, reason=reason)
    if not now.reaches(fixed.position):
        raise errors.read.BINLOG_GONE(source=source, position=fixed.position, reason=f"the source is at {now}")
    if _made(source, endpoint, fixed.position) != fixed.made:
        reason = f"the source has another file {fixed.position.file} than then"
        raise errors.read.BINLOG_GONE(source=source, position=fixed.position, reason=reason)


def _made(source: str, endpoint: Endpoint, position: SourcePosition) -> int:
    """See :func:`file_made`. Raises ``read.BINLOG_GONE``, too."""
    try:
        return file_made(source, endpoint, position)
    except ShardmergeError as error:
        reason = why_gone(error)
        if reason is None:
            raise
        raise errors.read.BINLOG_GONE(source=source, position=position, reason=reason) from error


def check_server(session: Session, source: str, refused: ErrorSpec = errors.read.SERVER_REFUSED) -> None:
    """Raises ``refused`` for a server whose binlog lacks rows."""
    for variable, needed in _NEEDED:
        [(value,)] = rows(session, f"SELECT @@GLOBAL.{variable}")
        if text_of(value).upper() != needed:
            raise refused(source=source, variable=variable, value=text_of(value), needed=needed)


def tables_at(
    session: Session, info: ServerInfo, source: ReadSource, options: ReadOptions
) -> tuple[list[Table], SourcePosition]:
    """The tables, and a position at which they have this structure: it is the same before and after the position was
    determined. A statement that ran in between and was undone is in the binlog after the position, where it is
    found."""
    tables = listed_tables(session, source, options)
    for _ in range(_ATTEMPTS):
        position = low_watermark(session, info, source.source)
        again = listed_tables(session, source, options)
        if same_tables(tables, again):
            return again, position
        tables = again
    raise errors.read.STRUCTURE_MOVES(source=source.source, attempts=_ATTEMPTS)


def listed_tables(session: Session, source: ReadSource, options: ReadOptions) -> list[Table]:
    """The tables that the rules send to the merged table. Raises ``read.NO_TABLE`` and ``pymysql.MySQLError``."""
    names = [name for name in list_tables(session) if source.sends_to(options.target, *name)]
    if not names:
        raise errors.read.NO_TABLE(source=source.source, wanted=options.wanted)
    return read_tables(session, names, source=source.source)


def check_cascades(session: Session, source: str, tables: list[Table]) -> None:
    """Raises ``read.TABLE_REFUSED`` for a table with rows that foreign keys change."""
    texts = read_create_texts(session, [(table.schema, table.name) for table in tables])
    for table, text in zip(tables, texts, strict=True):
        try:
            keys = cascading_keys(text)
        except UnreadableCreateTable as error:
            raise _refused(source, table, f"its SHOW CREATE TABLE cannot be read: {error}") from error
        if keys:
            raise _refused(
                source, table, f"foreign key {', '.join(keys)} changes its rows, which the binlog does not show"
            )


def _refused(source: str, table: Table, reason: str) -> errors.ShardmergeError:
    return errors.read.TABLE_REFUSED(source=source, schema=table.schema, table=table.name, reason=reason)


def plan_table(number: int, table: Table, source: ReadSource, *, with_rows: bool = True) -> TablePlan:
    """The plan of a table that the rules send to the merged table. ``with_rows``: its rows are read, not only its
    changes. Raises ``read.TABLE_REFUSED`` and the errors of the rules."""
    if with_rows and not table.key:
        raise _refused(source.source, table, "it has no primary key and no unique key of columns that are NOT NULL")
    if with_rows and not is_versioned(table):
        raise _refused(source.source, table, f"its engine {table.engine} has no consistent reads")
    plan = source.lazy_rules.rules.plan(number, source.source, table)
    reason = unsupported_rule(plan)
    if reason:
        raise _refused(source.source, table, reason)
    return plan
