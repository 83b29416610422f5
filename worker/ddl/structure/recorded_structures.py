"""The recorded structures of a subtask's shard tables, and how an operator replaces one.

Row events are decoded by a structure, and the binlog's DDL changes it. Replacing one by hand must keep the lanes'
checkpoints valid: rows must stay with the same lanes, and on the same side of the snapshot's watermarks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pymysql
from pymysql.constants import ER

from shardmerge.proto import config_pb2, errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.listed_names import listed
from shardmerge.worker.core.mysql.connection import Session, Side, coded_errors, errno_of, quote_name, rows, text_of
from shardmerge.worker.core.mysql.endpoint import Endpoint
from shardmerge.worker.core.mysql.information_schema import read_table
from shardmerge.worker.core.mysql.show_create import read_shard_statements
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.structure.schema_tracker import Tracked
from shardmerge.worker.rules import Rules
from shardmerge.worker.target.records import checkpoint as checkpoints
from shardmerge.worker.target.records import (
    ddl_progress,
    dropped_columns,
    parked_tables,
    subtask_record,
)
from shardmerge.worker.target.records.history import passed_watermarks
from shardmerge.worker.target.records.joining_tables import Joining
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.partitioning import Growing, Partitioning
from shardmerge.worker.target.records.subtask_record import Phase, SubTaskRow
from shardmerge.worker.target.tables.make_targets import plans_for
from shardmerge.worker.target.tables.target_table import check_existing_target
from shardmerge.worker.unit.run_context import who_of

_ATTEMPTS = 10
_LISTED = 10


@dataclass(frozen=True, slots=True)
class RecordedStructures:
    """A subtask's records. ``plans``: of the shard tables that take part, join or are parked, by number. ``joining``:
    the numbers of those that join. ``resets``: of those whose structure is to be read from the source again.
    ``growing``: tables that get columns at later places."""

    who: SubtaskKey
    row: SubTaskRow
    rules: Rules
    plans: Mapping[int, TablePlan]
    parked: Mapping[int, Parked]
    joining: frozenset[int]
    resets: frozenset[int]
    growing: tuple[Growing, ...]

    @staticmethod
    def read(session: Session, config: config_pb2.SubTaskConfig) -> RecordedStructures | None:
        """None when the subtask has not begun at the target. Raises ``pymysql.MySQLError``, the rules' errors."""
        who = who_of(config)
        try:
            row = subtask_record.read_row(session, who)
            tables = subtask_record.read_tables(session, who)
        except pymysql.MySQLError as error:
            if errno_of(error) not in (ER.BAD_DB_ERROR, ER.NO_SUCH_TABLE):
                raise
            return None
        if row is None or row.phase is Phase.NEW:
            return None
        partitioning, joining = Partitioning.from_json(row.partitioning), Joining.from_json(row.joining)
        # Its rows are partitioned by these rules; before the partitioning was recorded, all routed tables take part.
        rules = partitioning.compiled_rules() if partitioning is not None else Rules.from_config(config)
        parked = parked_tables.read(session, who)
        coming = joining.numbers if joining is not None else frozenset[int]()
        shards = partitioning.shards.union(parked, coming) if partitioning is not None else None
        plans = {plan.shard: plan for plan in plans_for(rules, config.source_id, tables, shards)}
        if joining is not None:
            later = plans_for(joining.partitioning.compiled_rules(), config.source_id, tables, coming)
            plans |= {plan.shard: plan for plan in later}
        growing = partitioning.growing if partitioning is not None else ()
        return RecordedStructures(who, row, rules, plans, parked, coming, _read_resets(session, who), growing)

    def find(self, schema: str, table: str) -> TablePlan:
        """The shard table of that name. Raises SCHEMA_TABLE_UNKNOWN."""
        _, task, source = self.who
        for wanted in (
            (schema, table),
            (schema.lower(), table.lower()),
        ):  # see shardmerge.worker.ddl.decide.actions.Scene.find
            for plan in self.plans.values():
                if (plan.table.schema, plan.table.name) == wanted:
                    return plan
        raise unknown_table_error(task, source, schema, table, (plan.table.full_name for plan in self.plans.values()))

    def check_replaceable(self, session: Session, plan: TablePlan) -> None:
        """Check that the table's structure may be replaced now. Raises SCHEMA_TOO_EARLY, SCHEMA_TABLE_WAITS,
        SCHEMA_STATEMENT_BEGUN, ``pymysql.MySQLError``."""
        _, task, source = self.who
        named = {"task": task, "source": source, "table": plan.table.full_name}
        if self.row.phase is not Phase.REPLICATE:
            raise errors.ddl.SCHEMA_TOO_EARLY(what=f"the subtask is in phase {self.row.phase.value}", **named)
        if plan.shard in self.joining and plan.shard not in self.parked:
            raise errors.ddl.SCHEMA_TOO_EARLY(what="the table is joining the task", **named)
        grows = next((item for item in self.growing if item.number == plan.shard), None)
        if grows is not None and not grows.is_passed(checkpoints.read_begun(session, self.who)):
            what = f"the lanes have not reached the statement before {grows.at} that adds columns to it"
            raise errors.ddl.SCHEMA_TOO_EARLY(what=what, **named)
        item = self.parked.get(plan.shard)
        if item is not None:
            target = plan.target
            lock = f"{task}-`{target.schema}`.`{target.table}`"
            raise errors.ddl.SCHEMA_TABLE_WAITS(lock=lock, position=item.place.position, **named)
        if ddl_progress.has_begun_statement(session, self.who):
            raise errors.ddl.SCHEMA_STATEMENT_BEGUN(**named)

    def replace(self, session: Session, epoch: int, number: int, tracked: Tracked) -> None:
        """Replace the recorded structure of shard table ``number`` by ``tracked``.

        Raises SCHEMA_KEY, FENCED, the rules' errors and those of a target that does not fit, ``pymysql.MySQLError``.
        """
        before = self.plans[number]
        after = self.rules.plan(number, self.who.source, tracked.table)
        if _key(before) != _key(after):
            self._check_key(session, before, after)
        check_existing_target(session, [after])
        names = frozenset(column.name.lower() for column in tracked.table.columns)

        def also(inner: Session) -> None:
            schema, task, source = self.who
            ddl_progress.write_creations(inner, self.who, {number: tracked.creation})
            ddl_progress.clear_reset(inner, self.who, number)
            left = dropped_columns.read(inner, schema, task).get((source, number))
            if left is not None:  # a column that it has again is not dropped
                dropped_columns.write(inner, schema, task, {(source, number): left - names})

        subtask_record.record_statement(session, self.who, epoch, {}, {number: tracked.table}, also)

    def _check_key(self, session: Session, before: TablePlan, after: TablePlan) -> None:
        """The key decides the lane of a row, and its chunk and thereby its watermark."""
        _, task, source = self.who
        found = checkpoints.read_begun(session, self.who)
        reason = ""
        if len({(each.relay_id, each.offset, each.skip_events) for each in found}) > 1:
            reason = "the lanes are at different positions, between which its rows are partitioned by the key"
        elif before.shard not in passed_watermarks.read(session, self.who) and not all(
            each.position.reaches(high) for each in found for high in self._highs(session, before.shard)
        ):
            reason = "some of its changes must still be compared with the snapshot's chunks, which were cut by the key"
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


def _read_resets(session: Session, who: SubtaskKey) -> frozenset[int]:
    try:
        return ddl_progress.read_resets(session, who)
    except pymysql.MySQLError as error:
        if errno_of(error) != ER.NO_SUCH_TABLE:  # of an earlier version, in which no structure could be deleted
            raise
        return frozenset()


def unknown_table_error(task: str, source: str, schema: str, table: str, names: Iterable[str] = ()) -> ShardmergeError:
    """SCHEMA_TABLE_UNKNOWN. ``names``: of the subtask's shard tables."""
    known = sorted(names)
    return errors.ddl.SCHEMA_TABLE_UNKNOWN(
        task=task,
        source=source,
        table=f"{schema}.{table}",
        known=listed(known, _LISTED) if known else "none that is recorded at the target yet",
    )


def _key(plan: TablePlan) -> tuple[object, ...]:
    """How rows are keyed: plans with equal results partition rows to the same lanes, and order them the same way."""
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


def read_current(session: Session, schema: str, name: str, task: str, source: str) -> Tracked | None:
    """The current structure of a table at ``session``'s server; None: the table does not exist.

    Raises SCHEMA_TABLE_CHANGES, the check.* errors of what cannot be copied, ``pymysql.MySQLError``.
    """
    before: Table | None = None
    for _ in range(_ATTEMPTS):
        found = read_table(session, schema, name, source=source)
        if found is None:
            return None
        before = found
        try:
            [creation] = read_shard_statements(session, [(schema, name)])
        except pymysql.MySQLError as error:
            if errno_of(error) != ER.NO_SUCH_TABLE:
                raise
            continue  # it was dropped meanwhile
        now = read_table(session, schema, name, source=source)
        if now is not None and now.structure == found.structure:
            return Tracked(found.structure, creation)
    assert before is not None  # noqa: S101 - for the type checker
    raise errors.ddl.SCHEMA_TABLE_CHANGES(task=task, source=source, table=before.full_name)


def record_reset_structures(
    source: Session, target: Session, config: config_pb2.SubTaskConfig, epoch: int, endpoints: tuple[Endpoint, Endpoint]
) -> None:
    """Record the source's current structures for tables whose structure was deleted. ``endpoints``: source, target.

    Raises SCHEMA_TABLE_GONE, what :meth:`RecordedStructures.replace` and :func:`read_current` raise, coded errors of
    the servers.
    """
    with coded_errors(endpoints[1], Side.TARGET, "target"):
        recorded = RecordedStructures.read(target, config)
        if recorded is None:
            return
        for number in sorted(recorded.resets):
            plan = recorded.plans.get(number)
            if plan is None:  # it no longer takes part
                continue
            with coded_errors(endpoints[0], Side.SOURCE, config.source_id):
                now = read_current(source, plan.table.schema, plan.table.name, config.task, config.source_id)
            if now is None:
                raise missing_error(plan, config.task, "source", plan.table.full_name)
            recorded.replace(target, epoch, number, now)


def missing_error(plan: TablePlan, task: str, place: str, name: str) -> ShardmergeError:
    """SCHEMA_TABLE_GONE. ``place``: source or target, where ``name`` does not exist."""
    return errors.ddl.SCHEMA_TABLE_GONE(
        source=plan.source, task=task, table=plan.table.full_name, place=place, name=name
    )
