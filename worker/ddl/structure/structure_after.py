"""Computes a shard table's structure after an ALTER TABLE, CREATE INDEX or DROP INDEX, also for a parked table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pymysql

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Session, dialect_of, execute
from shardmerge.worker.core.mysql.server_errors import ErrorKind, errno_of, kind_of, reason_of
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.sql.table_text import UnreadableCreateTable
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.ddl.split.pieces import statements_at
from shardmerge.worker.ddl.sql.dialect import Dialect, declared_types
from shardmerge.worker.ddl.sql.statement import parse_ddl
from shardmerge.worker.ddl.sql.target_statement import Changing, for_table, renamed_columns
from shardmerge.worker.ddl.structure.schema_tracker import DeclaredColumns, SchemaTracker, Tracked
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.statement_session import StatementSession
from shardmerge.worker.target.tables.target_table import find_fallback_collations

_MOST_KNOWN = 1000

Refused = Callable[[str, object, int], ShardmergeError]
"""Returns the coded error for a table's name, the reason and the server's error number (0: none)."""


class StructureMemo:
    """Results of :func:`structure_after` for one target: the shard tables of a merge are mostly equal, and get equal
    statements. For one thread."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], Tracked] = {}

    def find(self, key: tuple[object, ...], table: Table) -> Tracked | None:
        """The result for an equal table under the name of ``table``."""
        known = self._known.get(key)
        return known and replace(known, table=replace(known.table, schema=table.schema, name=table.name))

    def add(self, key: tuple[object, ...], tracked: Tracked) -> None:
        """Keep a result."""
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[key] = tracked


def structure_after(
    tracker: SchemaTracker,
    table: Table,
    creation: CreateStatement,
    text: str,
    statement: Statement,
    ddl: Changing,
    session_settings: StatementSession,
    dialect: Dialect,
    refused: Refused,
    memo: StructureMemo | None = None,
) -> Tracked:
    """``table`` after ``statement``. ``text``: the statement for merged tables. ``ddl``: the parsed original.
    ``memo``: of the target and the kind of source.

    Raises what ``refused`` returns when the statement cannot run on the table, and ``pymysql.MySQLError`` for other
    failures (a lost connection).
    """
    moved = for_table(text, statement, TargetTable(*tracker.place))
    mode = statement.sql_mode or 0
    types, renamed = declared_types(statement.text, statement.schema, mode), renamed_columns(ddl)
    declared = DeclaredColumns(types.keys() | dialect.converted_columns(table.columns, statement), renamed)
    key = (
        replace(table.structure, schema="", name=""),
        creation.body,
        creation.collation,
        moved,
        tuple(sorted((name, token.text) for name, token in types.items())),
        tuple(sorted(renamed.items())),
        session_settings,
        mode,
    )
    known = memo.find(key, table) if memo is not None else None
    if known is not None:
        return known
    try:
        tracked = tracker.after(
            table,
            creation,
            runner(moved, session_settings),
            lambda now: dialect.as_declared(now, statement, creation.collation, table.columns),
            declared,
        )
    except pymysql.MySQLError as error:
        raise refusal_of(error, table.full_name, refused) from error
    except UnreadableCreateTable as error:
        raise refused(table.full_name, error, 0) from error
    tracked = replace(tracked, creation=dialect.default_after(tracked.creation, creation.collation, statement))
    if memo is not None:
        memo.add(key, tracked)
    return tracked


def parked_structure_after(
    tracker: SchemaTracker,
    plan: TablePlan,
    creation: CreateStatement,
    item: Parked,
    task: str,
    memo: StructureMemo | None = None,
) -> Tracked:
    """``plan``'s table after the statement at which it is parked. Raises as :func:`structure_after`, with
    STRUCTURE_REFUSES."""
    session = tracker.session
    dialect = Dialect(item.is_mariadb, tracker.target, lambda names: find_fallback_collations(session, names))

    def refused(name: str, reason: object, errno: int) -> ShardmergeError:
        return errors.ddl.STRUCTURE_REFUSES(
            source=plan.source,
            task=task,
            position=item.place.position,
            table=name,
            reason=reason,
            errno=errno,
            statement=item.text,
        )

    statement, ddl = reparse(item)
    return structure_after(
        tracker, plan.table, creation, item.text, statement, ddl, item.session, dialect, refused, memo
    )


def reparse(item: Parked) -> tuple[Statement, Changing]:
    """The statement at which a shard table is parked, in its form for merged tables."""
    begin = RelayOffset(0, 0)  # where it is in a relay log does not matter
    ddl = parse_ddl(item.text, item.schema, item.sql_mode)
    assert isinstance(ddl, Changing)  # noqa: S101 - for the type checker: nothing else is parked
    offset, position = RelayOffset(0, item.place.at), item.place.position
    return Statement(begin, offset, offset, position, item.schema, item.text, item.sql_mode), ddl


def runner(text: str, session_settings: StatementSession) -> Callable[[Session], None]:
    """Returns a function that runs ``text`` with the source session's settings, in the parts that the target runs."""

    def run(session: Session) -> None:
        with session_settings.applied_to(session):
            for part in statements_at(dialect_of(session), text, session_settings.sql_mode):
                execute(session, part)

    return run


def refusal_of(error: pymysql.MySQLError, table: str, refused: Refused) -> Exception:
    """What ``refused`` returns when the server has refused the statement; ``error`` itself for other failures."""
    if kind_of(errno_of(error)) not in (ErrorKind.STATEMENT, ErrorKind.SESSION):
        return error
    return refused(table, reason_of(error), errno_of(error))
