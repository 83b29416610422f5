"""Computes a shard table's structure after a statement, by running the statement on an empty table at the target.

The tracker is an empty table in the meta schema. It is created from the shard table's recorded CREATE TABLE; then the
statement runs on it, its structure is read from information_schema, and it is dropped. The tracker keeps no state, so a
restart at any checkpoint repeats this with the same result. Only the result is kept, with the checkpoints to which it
belongs.

The target may be another kind of server than the source and describe a column differently (JSON, which MariaDB keeps as
LONGTEXT; collations that it lacks). So columns that the statement does not change stay as the source described them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace

import pymysql

from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import (
    CONNECT_SECONDS,
    Session,
    Side,
    connect,
    dialect_of,
    endpoint_of,
    execute,
    quote_name,
    rows,
    text_of,
)
from shardmerge.worker.core.mysql.create_table import merged_create_table
from shardmerge.worker.core.mysql.information_schema import read_table
from shardmerge.worker.core.mysql.show_create import CreateStatement, read_create_statement
from shardmerge.worker.core.mysql.target_dialect import TargetDialect
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table import Column, Table
from shardmerge.worker.core.table_plan import ColumnPlan
from shardmerge.worker.target.tables.target_table import created_collations

_PREFIX = "ddl_tracker_"


@dataclass(frozen=True, slots=True)
class Tracked:
    """A shard table's structure after a statement."""

    table: Table
    creation: CreateStatement


class SchemaTracker:
    """Computes one structure at a time, in ``session`` at the target. ``name``: the tracker's own table.

    Methods raise ``pymysql.MySQLError`` (also when the server refuses the statement), UnreadableCreateTable and the
    check.* errors of a structure that cannot be copied exactly.
    """

    def __init__(self, session: Session, meta_schema: str, name: str) -> None:
        self._session = session
        self._schema, self._name = meta_schema, _PREFIX + name

    @property
    def target(self) -> TargetDialect:
        """The target's dialect. Raises ``pymysql.MySQLError``."""
        return dialect_of(self._session)

    @property
    def session(self) -> Session:
        """At the target."""
        return self._session

    @property
    def place(self) -> tuple[str, str]:
        """(schema, table) with which the statement replaces the shard table's name."""
        return self._schema, self._name

    def after(
        self,
        table: Table,
        creation: CreateStatement,
        run: Callable[[Session], None],
        as_declared: Callable[[Table], Table],
        declared: DeclaredColumns,
    ) -> Tracked:
        """``table`` after the statement. ``run`` runs the statement on the tracker. ``as_declared``: returns the table
        with the columns that the statement declares, as the source has them."""
        with self._absent_otherwise():
            self._make(table, creation)
            before = self._read(table)
            run(self._session)
            now = self._read(table)
            if now is None or before is None:
                raise AssertionError("the tracker is gone")
            return Tracked(merge_tracked(table, before, as_declared(now), declared), self._creation())

    def created(self, schema: str, name: str, run: Callable[[Session], None]) -> Tracked:
        """A table that the statement creates. ``run`` runs the statement with the tracker's name."""
        with self._absent_otherwise():
            run(self._session)
            made = read_table(self._session, *self.place, source="target")
            if made is None:
                raise AssertionError("the tracker was not made")
            return Tracked(replace(made.structure, schema=schema, name=name), self._creation())

    def _make(self, table: Table, creation: CreateStatement) -> None:
        replaced = created_collations(self._session, {creation.collation, *table.collations})
        as_is = tuple(ColumnPlan(index, column, column.name) for index, column in enumerate(table.columns))
        place = f"{quote_name(self._schema)}.{quote_name(self._name)}"
        text = merged_create_table(
            creation.text,
            table.columns,
            as_is,
            place,
            creation.collation,
            replaced,
            keep_invisible=self.target.has_invisible_columns,
        )
        execute(self._session, text)

    def _read(self, table: Table) -> Table | None:
        return read_table(self._session, *self.place, source=f"the target, for {table.full_name}")

    def _creation(self) -> CreateStatement:
        return read_create_statement(self._session, *self.place)

    @contextmanager
    def _absent_otherwise(self) -> Generator[None]:
        """Before and after the block there is no tracker."""
        self._drop(self._session)
        try:
            yield
        finally:
            try:
                self._drop(self._session)
            except pymysql.MySQLError:
                # A stop has ended the session. After stop-task no run of the task would drop the tracker.
                with suppress(pymysql.MySQLError, ShardmergeError):
                    other = connect(
                        endpoint_of(self._session), Side.TARGET, name="target", read_timeout=CONNECT_SECONDS
                    )
                    with closing(other):
                        self._drop(other)
                raise

    def _drop(self, session: Session) -> None:
        execute(session, f"DROP TABLE IF EXISTS {quote_name(self._schema)}.{quote_name(self._name)}")


def open_tracker(session: Session, who: SubtaskKey, asker: str, epoch: int) -> SchemaTracker:
    """The tracker of ``who``'s ``asker`` (a stream, the lock agent). Drops trackers that killed runs have left.

    The name contains the epoch, so an older process that still uses its tracker does no harm. Raises
    ``pymysql.MySQLError``.
    """
    schema, task, source = who
    name = hashlib.sha256(f"{task}\n{source}\n{asker}".encode()).hexdigest()[:24]
    tracker = SchemaTracker(session, schema, f"{name}_{epoch}")
    prefix = f"{_PREFIX}{name}_"
    found = rows(
        session,
        "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND LEFT(TABLE_NAME, %s) = %s",
        (schema, len(prefix), prefix),
    )
    for (left,) in found:
        if text_of(left) != tracker.place[1]:
            execute(session, f"DROP TABLE IF EXISTS {quote_name(schema)}.{quote_name(text_of(left))}")
    return tracker


@dataclass(frozen=True, slots=True)
class DeclaredColumns:
    """The columns that a statement declares, and the old name of each column that it renames; names in lower case."""

    declared: Collection[str] = ()
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])


def merge_tracked(table: Table, before: Table, now: Table, declared: DeclaredColumns) -> Table:
    """The source's ``table`` after a statement that changed its tracker from ``before`` to ``now``. Pure.

    A column that the statement did not change, or only renamed, stays as the source described it.
    """
    own = {column.name.lower(): column for column in table.columns}
    known = {column.name.lower(): column for column in before.columns}

    def column(each: Column) -> Column:
        name = each.name.lower()
        former = declared.renamed.get(name, name)
        was = known.get(former)
        if was is None or name in declared.declared:
            return each
        # The tracker has no AUTO_INCREMENT: its CREATE TABLE leaves it out (worker/core/mysql/create_table.py).
        alike = (replace(was, name=each.name), replace(was, name=each.name, auto_increment=False))
        return replace(own[former], name=each.name) if each in alike else each

    return replace(
        table,
        columns=tuple(map(column, now.columns)),
        key=now.key,
        key_name=now.key_name,
        key_hidden=now.key_hidden,
        unique_keys=now.unique_keys,
    )
