"""The structures that are recorded of a subtask's shard tables, and how one is replaced by another.

A structure is what row events are read by, and what the DDL of the binlog builds on. Replacing one by hand must keep
what the lanes' checkpoints say true: rows go on to the same lanes, and to the same side of the snapshot's watermarks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pymysql
from pymysql.constants import ER

from proto import config_pb2, errors
from proto.errors import ShardmergeError
from worker import meta
from worker.connection import Session, Side, coding, errno_of, quote_name, rows, text_of
from worker.context import who_of
from worker.ddl import dropped, forgotten, parked, records
from worker.ddl.creation import read_creation
from worker.ddl.parked import Parked
from worker.ddl.tracker import Tracked
from worker.endpoint import Endpoint
from worker.join.record import Joining
from worker.meta import Phase, SubTaskRow
from worker.plan import TablePlan
from worker.plans import planned
from worker.position import SourcePosition
from worker.replicate import checkpoint as checkpoints
from worker.replicate.dealing import Dealing
from worker.rules import Rules
from worker.schema import read_table
from worker.snapshot import passed
from worker.table import Table
from worker.target_table import compare_target

_ATTEMPTS = 10
_LISTED = 10

Who = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A subtask's records. ``plans``: of the shard tables that take part, join or wait, by number; ``joining``: the
    numbers of those that join; ``forgotten``: of those to be read from the source anew."""

    who: Who
    row: SubTaskRow
    rules: Rules
    plans: Mapping[int, TablePlan]
    parked: Mapping[int, Parked]
    joining: frozenset[int]
    forgotten: frozenset[int]

    @staticmethod
    def read(session: Session, config: config_pb2.SubTaskConfig) -> Recorded | None:
        """None when nothing has begun at the target yet. Raises ``pymysql.MySQLError``, the rules' errors."""
        who = who_of(config)
        try:
            row = meta.read_row(session, *who)
            tables = meta.read_tables(session, *who)
        except pymysql.MySQLError as error:
            if errno_of(error) not in (ER.BAD_DB_ERROR, ER.NO_SUCH_TABLE):
                raise
            return None
        if row is None or row.phase is Phase.NEW:
            return None
        dealing, joining = Dealing.from_json(row.dealing), Joining.from_json(row.joining)
        # Under these its rows have been dealt so far; before that was recorded, all that was let through takes part.
        rules = dealing.compiled_rules() if dealing is not None else Rules.from_config(config)
        waiting = parked.read(session, *who)
        coming = joining.numbers if joining is not None else frozenset[int]()
        shards = dealing.shards.union(waiting, coming) if dealing is not None else None
        plans = {plan.shard: plan for plan in planned(rules, config.source_id, tables, shards)}
        if joining is not None:
            later = planned(joining.dealing.compiled_rules(), config.source_id, tables, coming)
            plans |= {plan.shard: plan for plan in later}
        return Recorded(who, row, rules, plans, waiting, coming, _forgotten(session, who))

    def find(self, schema: str, table: str) -> TablePlan:
        """The shard table of that name. Raises SCHEMA_TABLE_UNKNOWN."""
        _, task, source = self.who
        for wanted in ((schema, table), (schema.lower(), table.lower())):  # see worker.ddl.plan.Scene.find
            for plan in self.plans.values():
                if (plan.table.schema, plan.table.name) == wanted:
                    return plan
        raise unknown(task, source, schema, table, (plan.table.full_name for plan in self.plans.values()))

    def check_free(self, session: Session, plan: TablePlan) -> None:
        """Whether the table's structure may be replaced now. Raises SCHEMA_TOO_EARLY, SCHEMA_TABLE_WAITS,
        SCHEMA_STATEMENT_BEGUN, ``pymysql.MySQLError``."""
        _, task, source = self.who
        named = {"task": task, "source": source, "table": plan.table.full_name}
        if self.row.phase is not Phase.REPLICATE:
            raise errors.ddl.SCHEMA_TOO_EARLY(what=f"the subtask is in phase {self.row.phase.value}", **named)
        if plan.shard in self.joining and plan.shard not in self.parked:
            raise errors.ddl.SCHEMA_TOO_EARLY(what="the table is on its way into the task", **named)
        item = self.parked.get(plan.shard)
        if item is not None:
            target = plan.target
            lock = f"{task}-`{target.schema}`.`{target.table}`"
            raise errors.ddl.SCHEMA_TABLE_WAITS(lock=lock, position=item.place.position, **named)
        if records.is_begun(session, *self.who):
            raise errors.ddl.SCHEMA_STATEMENT_BEGUN(**named)

    def replace(self, session: Session, epoch: int, number: int, tracked: Tracked) -> None:
        """Record ``tracked`` in the place of the structure that shard table ``number`` has.

        Raises SCHEMA_KEY, FENCED, the rules' errors and those of a target that does not fit, ``pymysql.MySQLError``.
        """
        before = self.plans[number]
        after = self.rules.plan(number, self.who[2], tracked.table)
        if _key(before) != _key(after):
            self._check_key(session, before, after)
        compare_target(session, [after])
        names = frozenset(column.name.lower() for column in tracked.table.columns)

        def also(inner: Session) -> None:
            schema, task, source = self.who
            records.write_creations(inner, *self.who, {number: tracked.creation})
            forgotten.remembered(inner, *self.who, number)
            left = dropped.read(inner, schema, task).get((source, number))
            if left is not None:  # what it has again it has not dropped
                dropped.write(inner, schema, task, {(source, number): left - names})

        meta.pass_statement(session, *self.who, epoch, {}, {number: tracked.table}, also)

    def _check_key(self, session: Session, before: TablePlan, after: TablePlan) -> None:
        """Rows are dealt to lanes, and held against the chunks' watermarks, by their keys."""
        _, task, source = self.who
        found = checkpoints.read_begun(session, *self.who)
        reason = ""
        if len({(each.relay_id, each.offset, each.skip_events) for each in found}) > 1:
            reason = "the lanes stand at different places, between which its rows are dealt by the key"
        elif before.shard not in passed.read(session, *self.who) and not all(
            each.position.reaches(high) for each in found for high in self._highs(session, before.shard)
        ):
            reason = "some of its changes are still to be held against the snapshot's chunks, which were cut by the key"
        if reason:
            raise errors.ddl.SCHEMA_KEY(
                task=task,
                source=source,
                table=before.table.full_name,
                before=_shown(before),
                now=_shown(after),
                reason=reason,
            )

    def _highs(self, session: Session, number: int) -> list[SourcePosition]:
        """The high watermarks of the table's chunks; none without a snapshot."""
        schema, task, source = self.who
        try:
            found = rows(
                session,
                "SELECT `source_file`, `source_pos`, `gtid_set`, `source_server` "
                f"FROM {quote_name(schema)}.`snapshot_chunk` WHERE `task` = %s AND `source` = %s AND `shard` = %s",
                (task, source, number),
            )
        except pymysql.MySQLError as error:
            if errno_of(error) != ER.NO_SUCH_TABLE:
                raise
            return []
        return [SourcePosition(text_of(a), int(b), text_of(c), text_of(d)) for a, b, c, d in found]


def _forgotten(session: Session, who: Who) -> frozenset[int]:
    try:
        return forgotten.read(session, *who)
    except pymysql.MySQLError as error:
        if errno_of(error) != ER.NO_SUCH_TABLE:  # of an earlier version: nobody could delete any
            raise
        return frozenset()


def unknown(task: str, source: str, schema: str, table: str, names: Iterable[str] = ()) -> ShardmergeError:
    """``names``: of the shard tables that the subtask has."""
    known = sorted(names)
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    return errors.ddl.SCHEMA_TABLE_UNKNOWN(
        task=task,
        source=source,
        table=f"{schema}.{table}",
        known=", ".join(known[:_LISTED]) + more if known else "none that is recorded at the target yet",
    )


def _key(plan: TablePlan) -> tuple[object, ...]:
    """What becomes of a row's key: equal ones deal rows alike, and order them alike."""
    found = [plan.columns[index] for index in plan.key]
    return tuple(
        (
            each.target_name,
            each.mapping,
            each.column.kind,
            each.column.unsigned,
            each.column.collation,
            each.column.labels,
            each.column.length,
        )
        for each in found
    )


def _shown(plan: TablePlan) -> str:
    parts = (f"{plan.columns[index].target_name} {plan.columns[index].column.type_text}" for index in plan.key)
    return ", ".join(parts) or "none"


def as_now(session: Session, schema: str, name: str, task: str, source: str) -> Tracked | None:
    """A table at ``session``'s server as it is now; None: it is not there.

    Raises SCHEMA_TABLE_CHANGES, the check.* errors of what cannot be copied, ``pymysql.MySQLError``.
    """
    before: Table | None = None
    for _ in range(_ATTEMPTS):
        found = read_table(session, schema, name, source=source)
        if found is None:
            return None
        before = found
        try:
            creation = read_creation(session, schema, name)
        except pymysql.MySQLError as error:
            if errno_of(error) != ER.NO_SUCH_TABLE:
                raise
            continue  # it has just gone
        now = read_table(session, schema, name, source=source)
        if now is not None and now.structure == found.structure:
            return Tracked(found.structure, creation)
    assert before is not None  # noqa: S101 - for the type checker
    raise errors.ddl.SCHEMA_TABLE_CHANGES(task=task, source=source, table=before.full_name)


def read_forgotten(
    source: Session, target: Session, config: config_pb2.SubTaskConfig, epoch: int, endpoints: tuple[Endpoint, Endpoint]
) -> None:
    """Record the structures that were deleted as the source has the tables now; ``endpoints``: of source and target.

    Raises SCHEMA_TABLE_GONE, what :meth:`Recorded.replace` and :func:`as_now` raise, coded errors of the servers.
    """
    with coding(endpoints[1], Side.TARGET, "target"):
        recorded = Recorded.read(target, config)
        if recorded is None:
            return
        for number in sorted(recorded.forgotten):
            plan = recorded.plans.get(number)
            if plan is None:  # it takes no part any more
                continue
            with coding(endpoints[0], Side.SOURCE, config.source_id):
                now = as_now(source, plan.table.schema, plan.table.name, config.task, config.source_id)
            if now is None:
                raise gone(plan, config.task, "source", plan.table.full_name)
            recorded.replace(target, epoch, number, now)


def gone(plan: TablePlan, task: str, place: str, name: str) -> ShardmergeError:
    """``place``: source or target, where ``name`` is not there."""
    return errors.ddl.SCHEMA_TABLE_GONE(
        source=plan.source, task=task, table=plan.table.full_name, place=place, name=name
    )
