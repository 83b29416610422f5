"""What a statement makes of a shard table's structure, asked of a server.

The tracker is an empty table in the meta schema. It is made of the shard table's recorded CREATE TABLE, receives the
statement, is described by information_schema, and goes. Nothing of it outlives the question, so a restart at any
checkpoint asks again and gets the same answer; what is kept is the answer, with the checkpoints that it belongs to.

The target may be a server of another kind than the source, which describes a column otherwise (JSON, which MariaDB
keeps as LONGTEXT; collations that it lacks). So what the statement left alone stays as the source described it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from worker.connection import Session, execute, quote_name, rows, text_of
from worker.create_table import merged_create_table
from worker.ddl.creation import Creation, read_creation
from worker.plan import ColumnPlan
from worker.schema import read_table
from worker.table import Column, Table
from worker.target_table import find_stand_ins

_PREFIX = "ddl_tracker_"


@dataclass(frozen=True, slots=True)
class Tracked:
    """A shard table behind a statement."""

    table: Table
    creation: Creation


class Tracker:
    """One question at a time, in ``session`` at the target. ``name``: this subtask's own table.

    Methods raise ``pymysql.MySQLError`` (what the statement's refusal is, too), UnreadableCreateTable and the check.*
    errors of a structure that cannot be copied faithfully.
    """

    def __init__(self, session: Session, meta_schema: str, name: str) -> None:
        self._session = session
        self._schema, self._name = meta_schema, _PREFIX + name

    @property
    def session(self) -> Session:
        """At the target."""
        return self._session

    @property
    def place(self) -> tuple[str, str]:
        """(schema, table) to put in the place of the shard table's name."""
        return self._schema, self._name

    def after(
        self,
        table: Table,
        creation: Creation,
        run: Callable[[Session], None],
        as_declared: Callable[[Table], Table],
        told: Told,
    ) -> Tracked:
        """``table`` behind the statement; ``run`` runs it on the tracker. ``as_declared``: the table with the columns
        that the statement declares as the source has them."""
        self._drop()
        try:
            self._make(table, creation)
            before = self._read(table)
            run(self._session)
            now = self._read(table)
            if now is None or before is None:
                raise AssertionError("the tracker is gone")
            return Tracked(evolved(table, before, as_declared(now), told), self._creation())
        finally:
            self._drop()

    def created(self, schema: str, name: str, run: Callable[[Session], None]) -> Tracked:
        """A table that the statement makes; ``run`` runs it with the tracker's name."""
        self._drop()
        try:
            run(self._session)
            made = read_table(self._session, *self.place, source="target")
            if made is None:
                raise AssertionError("the tracker was not made")
            return Tracked(replace(made.structure, schema=schema, name=name), self._creation())
        finally:
            self._drop()

    def _make(self, table: Table, creation: Creation) -> None:
        stands = find_stand_ins(self._session, {creation.collation, *table.collations})
        replaced = {lacking: found for lacking, found in stands.items() if found is not None}
        as_is = tuple(ColumnPlan(index, column, column.name) for index, column in enumerate(table.columns))
        place = f"{quote_name(self._schema)}.{quote_name(self._name)}"
        text = merged_create_table(creation.text, table.columns, as_is, place, creation.collation, replaced)
        execute(self._session, text)

    def _read(self, table: Table) -> Table | None:
        return read_table(self._session, *self.place, source=f"the target, for {table.full_name}")

    def _creation(self) -> Creation:
        return read_creation(self._session, *self.place)

    def _drop(self) -> None:
        execute(self._session, f"DROP TABLE IF EXISTS {quote_name(self._schema)}.{quote_name(self._name)}")


def open_tracker(session: Session, who: tuple[str, str, str], asker: str, epoch: int) -> Tracker:
    """The tracker of ``who``'s ``asker`` (a stream, the lock agent); those that killed runs have left go.

    By epoch: what an older process still does with its tracker is its own affair. Raises ``pymysql.MySQLError``.
    """
    schema, task, source = who
    name = hashlib.sha256(f"{task}\n{source}\n{asker}".encode()).hexdigest()[:24]
    tracker = Tracker(session, schema, f"{name}_{epoch}")
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
class Told:
    """What the statement tells of columns, names in lower case: those that it declares, and the former name of each
    that it renames."""

    declared: Collection[str] = ()
    renamed: Mapping[str, str] = field(default_factory=dict[str, str])


def evolved(table: Table, before: Table, now: Table, told: Told) -> Table:
    """``table`` as the source has it behind a statement that made ``now`` of its tracker ``before``. Pure.

    A column that the statement left alone, or only renamed, stays as the source described it.
    """
    own = {column.name.lower(): column for column in table.columns}
    known = {column.name.lower(): column for column in before.columns}

    def column(each: Column) -> Column:
        name = each.name.lower()
        former = told.renamed.get(name, name)
        was = known.get(former)
        if was is None or name in told.declared:
            return each
        # Auto-increment is not the tracker's: it was left out of it (worker/create_table.py).
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
