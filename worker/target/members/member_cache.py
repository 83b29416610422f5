"""The shard tables of one task with their records, kept in memory: a reader reads again only what has changed.

A statement on one of a thousand shard tables needs the structures of all of them, and all but one are as before. The
versions of worker/target/records/member_versions.py say which have changed. Where a subtask's owner keeps no versions
(a process of an earlier version of the program), all its records are read each time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from shardmerge.proto import errors
from shardmerge.worker.core.mysql.connection import Session, quote_name, rows
from shardmerge.worker.core.mysql.consistent_read import consistent_read
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.rules import Rules
from shardmerge.worker.target.records import ddl_progress, executed_locks, member_versions, parked_tables
from shardmerge.worker.target.records import subtask_record as subtasks
from shardmerge.worker.target.records.executed_locks import LockRun
from shardmerge.worker.target.records.joining_tables import Joining
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.partitioning import Partitioning

V = TypeVar("V")

CHECK_VARIABLE = "SHARDMERGE_CHECK_MEMBERS"
"""Environment variable, for tests: compare each cached answer with the records."""

_MANY = 64
"""If more tables have changed than this number, and more than half of all, all records of the subtask are read at
once."""


@dataclass(frozen=True, slots=True)
class SourceMembers:
    """The shard tables of one source, by number. ``tables``: also former ones. ``plans``: of those that take part, join
    or are parked. ``creations``, ``parked``: as recorded."""

    tables: Mapping[int, Table]
    plans: Mapping[int, TablePlan]
    creations: Mapping[int, CreateStatement]
    parked: Mapping[int, Parked]
    partitioning: Partitioning | None
    joining: Joining | None


@dataclass(frozen=True, slots=True)
class TaskMembers:
    """``sources``: by source id, also those without any shard table. ``runs``: the last lock of each target."""

    sources: Mapping[str, SourceMembers]
    runs: Mapping[TargetTable, LockRun]


@dataclass(slots=True)
class _Subtask:
    """One subtask's records as they were at ``version`` of ``epoch``."""

    epoch: int
    version: int
    partitioning_text: str
    joining_text: str
    partitioning: Partitioning | None
    joining: Joining | None
    tables: dict[int, Table]
    creations: dict[int, CreateStatement]
    parked: dict[int, Parked]
    plans: dict[int, TablePlan] = field(default_factory=dict[int, TablePlan])

    def members(self) -> SourceMembers:
        return SourceMembers(
            dict(self.tables),
            dict(self.plans),
            dict(self.creations),
            dict(self.parked),
            self.partitioning,
            self.joining,
        )


class MemberCache:
    """The members of one task. Thread-safe: one reader at a time."""

    def __init__(self, meta_schema: str, task: str) -> None:
        self._schema, self._task = meta_schema, task
        self._lock = threading.Lock()
        self._known: dict[str, _Subtask] = {}
        self._rules: dict[str, Rules] = {}
        self._checks = bool(os.environ.get(CHECK_VARIABLE))

    def read(self, session: Session) -> TaskMembers:
        """The members as of one consistent read. ``session``: in no transaction.

        Raises ``pymysql.MySQLError`` and the rules' errors.
        """
        with self.reading(session) as found:
            return found

    @contextmanager
    def reading(self, session: Session) -> Generator[TaskMembers]:
        """As :meth:`read`, with a consistent read in which the block may read other records of the same moment."""
        # The lock first: a reader must not see an older moment than the one before it.
        with self._lock, consistent_read(session):
            found = self._read(session)
            if self._checks:
                self._check(session, found)
            yield found

    def _read(self, session: Session) -> TaskMembers:
        schema = quote_name(self._schema)
        heads = rows(
            session,
            f"SELECT s.`source`, s.`epoch`, s.`dealing`, s.`joining`, v.`epoch`, v.`version` FROM {schema}.`subtask` s "
            f"LEFT JOIN {schema}.`subtask_version` v ON v.`task` = s.`task` AND v.`source` = s.`source` "
            "WHERE s.`task` = %s ORDER BY s.`source`",
            (self._task,),
        )
        known: dict[str, _Subtask] = {}
        for source, epoch, partitioning, joining, kept_by, version in heads:
            head = _Head(str(source), int(str(epoch)), str(partitioning), str(joining))
            has_versions = kept_by is not None and int(str(kept_by)) == head.epoch
            known[head.source] = self._subtask(session, head, int(str(version)) if has_versions else None)
        self._known = known
        runs = executed_locks.read(session, self._schema, self._task)
        return TaskMembers(
            {source: subtask.members() for source, subtask in known.items()},
            runs,
        )

    def _subtask(self, session: Session, head: _Head, version: int | None) -> _Subtask:
        """The subtask's records. ``version``: None when its owner keeps none."""
        had = self._known.get(head.source)
        if had is None or version is None or had.epoch != head.epoch:
            return self._all(session, head, version)
        changed: tuple[int, ...] = ()
        if had.version != version:
            changed = member_versions.read_changed(session, self._who(head), had.version)
            if len(changed) > max(_MANY, len(had.tables) // 2):
                return self._all(session, head, version)
        if not changed and (head.partitioning, head.joining) == (had.partitioning_text, had.joining_text):
            had.version = version
            return had
        return self._changed(session, had, head, version, changed)

    def _who(self, head: _Head) -> SubtaskKey:
        return SubtaskKey(self._schema, self._task, head.source)

    def _all(self, session: Session, head: _Head, version: int | None) -> _Subtask:
        who = self._who(head)
        found = _Subtask(
            head.epoch if version is not None else -1,
            version or 0,
            head.partitioning,
            head.joining,
            Partitioning.from_json(head.partitioning),
            Joining.from_json(head.joining),
            dict(enumerate(subtasks.read_tables(session, who))),
            ddl_progress.read_creations(session, who),
            parked_tables.read(session, who),
        )
        self._replan(head.source, found, found.tables)
        return found

    def _changed(
        self, session: Session, had: _Subtask, head: _Head, version: int, changed: tuple[int, ...]
    ) -> _Subtask:
        who = self._who(head)
        partitioning, joining = had.partitioning, had.joining
        if head.partitioning != had.partitioning_text:
            partitioning = Partitioning.from_json(head.partitioning)
        if head.joining != had.joining_text:
            joining = Joining.from_json(head.joining)
        found = replace(
            had,
            version=version,
            partitioning_text=head.partitioning,
            joining_text=head.joining,
            partitioning=partitioning,
            joining=joining,
            tables=dict(had.tables),
            creations=dict(had.creations),
            parked=dict(had.parked),
            plans=dict(had.plans),
        )
        found.tables.update(subtasks.read_table_records(session, who, changed))
        creations = ddl_progress.read_creations(session, who, changed)
        parked = parked_tables.read(session, who, changed)
        for number in changed:
            _set(found.creations, number, creations.get(number))
            _set(found.parked, number, parked.get(number))
        same_facts = _facts(had.partitioning) == _facts(partitioning) and _facts(_of(had.joining)) == _facts(
            _of(joining)
        )
        self._replan(head.source, found, changed if same_facts else found.tables, had)
        return found

    def _replan(self, source: str, found: _Subtask, changed: Iterable[int], had: _Subtask | None = None) -> None:
        """Make the plans of these tables again, and of those that take part now and did not before."""
        if found.partitioning is None:
            found.plans.clear()
            return
        joins = found.joining.numbers if found.joining is not None else frozenset[int]()
        own = found.partitioning.shards.union(found.parked) - joins
        before = frozenset[int]()
        if had is not None:
            before = had.joining.numbers if had.joining is not None else before
        again = {*changed, *(number for number in own | joins if number not in found.plans), *(before ^ joins)}
        for number in found.plans.keys() - own - joins:
            del found.plans[number]
        for number in again:
            found.plans.pop(number, None)
        self._plan(source, found, own & again, found.partitioning)
        if found.joining is not None:
            self._plan(source, found, joins & again, found.joining.partitioning)

    def _plan(self, source: str, found: _Subtask, numbers: Iterable[int], partitioning: Partitioning) -> None:
        rules = self._compiled(partitioning)
        for number in numbers:
            table = found.tables.get(number)
            if table is None or rules.route(table.schema, table.name) is None:
                continue
            plan = rules.plan(number, source, table)
            found.plans[number] = replace(
                plan,
                one_lane=plan.target_name in partitioning.one_lane,
                may_lack_rows=plan.may_lack_rows or number in partitioning.may_lack_rows,
            )

    def _compiled(self, partitioning: Partitioning) -> Rules:
        found = self._rules.get(partitioning.rules)
        if found is None:
            if len(self._rules) > 2 * len(self._known) + 2:  # the rules before updates of the task
                self._rules.clear()
            found = self._rules[partitioning.rules] = partitioning.compiled_rules()
        return found

    def _check(self, session: Session, found: TaskMembers) -> None:
        """Compare with the records. Raises INTERNAL."""
        other = MemberCache(self._schema, self._task)._read(session)
        if other != found:
            raise errors.worker.INTERNAL(
                kind="stale members", where=f"task {self._task}", reason="the cached members differ from the records"
            )


@dataclass(frozen=True, slots=True)
class _Head:
    source: str
    epoch: int
    partitioning: str
    joining: str


def _of(joining: Joining | None) -> Partitioning | None:
    return joining.partitioning if joining is not None else None


def _facts(partitioning: Partitioning | None) -> tuple[object, ...]:
    """What the plans of all tables depend on."""
    if partitioning is None:
        return ()
    return partitioning.rules, partitioning.one_lane, partitioning.may_lack_rows


def _set(values: dict[int, V], number: int, value: V | None) -> None:
    if value is None:
        values.pop(number, None)
    else:
        values[number] = value
