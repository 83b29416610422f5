"""Checks the target's version, and whether its tables already hold rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pymysql
from pymysql.constants import ER

from shardmerge.proto import config_pb2 as config
from shardmerge.proto import errors
from shardmerge.proto import worker_pb2 as pb
from shardmerge.worker.core.mysql.connection import Session, quote_name, rows, server_info, text_of
from shardmerge.worker.core.mysql.server_errors import errno_of
from shardmerge.worker.core.mysql.target_dialect import ServerKind
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import PartitionId, TablePlan, TargetTable
from shardmerge.worker.rules import Rules
from shardmerge.worker.target.members.target_members import read_target_members
from shardmerge.worker.target.tables.earlier_rows import EarlierRows, Removable, earlier_rows
from shardmerge.worker.target.tables.row_ownership import ExtractedTexts, KeyRange
from shardmerge.worker.target.tables.target_table import find_target
from shardmerge.worker.unit.run_context import who_of
from shardmerge.worker.verify.precheck.findings import Checklist, failed, passed, warned

_OLDEST = {ServerKind.MYSQL: (5, 7, 0), ServerKind.MARIADB: (10, 2, 0), ServerKind.TIDB: (6, 2, 0)}
# TiDB has savepoints since 6.2.
_NEWEST_TESTED = {ServerKind.MYSQL: (9, 99, 0), ServerKind.MARIADB: (12, 99, 0), ServerKind.TIDB: (8, 5, 99)}


def check_version(checklist: Checklist, target: Session) -> None:
    checklist.run("downstream_version", lambda: _version(checklist.source, target))


def _version(source: str, target: Session) -> Iterator[pb.CheckResult]:
    info = server_info(target)
    kind, version = info.dialect.kind, info.dialect.version
    bad = version < _OLDEST[kind]
    untested = version > _NEWEST_TESTED[kind]
    if bad:
        yield failed("downstream_version", source, errors.check_room.TARGET_VERSION(version=info.text))
    elif untested:
        yield warned("downstream_version", source, errors.check_room.TARGET_UNTESTED(version=info.text))
    else:
        yield passed("downstream_version", source, info.text)


@dataclass(frozen=True, slots=True)
class StartRequest:
    """How the subtask starts. ``as_recorded``: it continues from its records; else the records of ``together``, the
    sources that are started with it, do not count."""

    subtask: config.SubTaskConfig
    as_recorded: bool
    together: frozenset[str]


def check_rows(checklist: Checklist, target: Session, plans: Sequence[TablePlan], start: StartRequest) -> None:
    """Find rows at the target that the task has not written."""
    checklist.run(
        "downstream_table_empty", lambda: _rows(checklist.source, target, plans, start), privilege_of="target_privilege"
    )


def _rows(source: str, target: Session, plans: Sequence[TablePlan], start: StartRequest) -> Iterator[pb.CheckResult]:
    if start.subtask.mode == config.TASK_MODE_INCREMENTAL:
        yield passed("downstream_table_empty", source, "task-mode incremental continues from existing rows")
        return
    written = _recorded_writers(target, start)
    earlier = EarlierRows() if start.as_recorded else _earlier_rows(target, start.subtask)
    groups: dict[tuple[str, str], list[TablePlan]] = {}
    for plan in plans:
        groups.setdefault((plan.target_schema, plan.target_table), []).append(plan)
    streamed = _Streamed(target, start)
    for names, group in groups.items():
        writers = written.get((names[0].lower(), names[1].lower()), frozenset())
        if source not in writers:
            writers |= streamed.writers(*names)
        if source in writers:
            continue  # from its own records
        found = find_target(target, group[0])
        if writers and not start.as_recorded and (found is None or not _has_rows(target, found, "")):
            yield from _gone(source, target, names, writers, start.subtask)
        elif found is not None:
            of_target = _of_target(earlier, group[0])
            mixed = next(_mixed(source, target, found, of_target, bool(writers), start.subtask), None)
            if mixed is not None:
                yield mixed
                continue
            removed = {one.plan.table.full_name: one.rows for one in of_target.removable}
            yield from _removed(source, target, found, of_target.removable)
            yield from _table(
                source,
                target,
                found,
                group,
                bool(writers),
                removed,
                safe_mode=start.subtask.replicate.safe_mode,
            )


def _earlier_rows(target: Session, subtask: config.SubTaskConfig) -> EarlierRows:
    """The rows of the run whose records are going to be deleted."""
    try:
        members = read_target_members(target, who_of(subtask))
    except pymysql.MySQLError as error:
        if errno_of(error) not in (ER.BAD_DB_ERROR, ER.NO_SUCH_TABLE):
            raise
        return EarlierRows()
    others = (*members.same_task, *members.other_tasks)
    return earlier_rows(members.own.values(), others, Rules.from_config(subtask))


def _of_target(earlier: EarlierRows, plan: TablePlan) -> EarlierRows:
    return EarlierRows(
        tuple(one for one in earlier.removable if one.plan.target == plan.target),
        tuple(one for one in earlier.unremovable if one.plan.target == plan.target),
    )


def _mixed(
    source: str, target: Session, found: Table, earlier: EarlierRows, shared: bool, subtask: config.SubTaskConfig
) -> Iterator[pb.CheckResult]:
    """Rows of the earlier run that would stay, and that the copy would write again."""
    for one in earlier.unremovable:
        if not isinstance(one.rows, KeyRange) and not shared:
            continue  # any row of the table is refused
        # By texts there is no index: any row of the table is refused.
        if _has_rows(target, found, one.rows.condition if isinstance(one.rows, KeyRange) else ""):
            name = f"{found.schema}.{found.name}"
            error = errors.check_data.EARLIER_ROWS_MIXED(task=subtask.task, source=source, target=name, why=one.why)
            yield failed("downstream_table_empty", source, error)


def _removed(source: str, target: Session, found: Table, removable: Sequence[Removable]) -> Iterator[pb.CheckResult]:
    for one in removable:
        if _has_rows(target, found, one.rows.condition if isinstance(one.rows, KeyRange) else ""):
            error = errors.check_data.EARLIER_ROWS_REMOVED(
                source=source,
                target=f"{found.schema}.{found.name}",
                count=len(removable),
                condition=one.rows.condition,
            )
            yield warned("downstream_table_empty", source, error)
            return


def _gone(
    source: str, target: Session, names: tuple[str, str], writers: frozenset[str], subtask: config.SubTaskConfig
) -> Iterator[pb.CheckResult]:
    """Rows of sources that do not start again, which the target had and no longer has."""
    meta = quote_name(subtask.meta_schema)
    copied = rows(
        target,
        f"SELECT t.`source`, SUM(c.`row_count`) FROM {meta}.`snapshot_table` t JOIN {meta}.`snapshot_chunk` c "
        "ON c.`task` = t.`task` AND c.`source` = t.`source` AND c.`shard` = t.`shard` "
        "WHERE t.`task` = %s AND t.`source` IN %s "
        "AND LOWER(t.`target_schema`) = %s AND LOWER(t.`target_table`) = %s "
        "GROUP BY t.`source` HAVING SUM(c.`row_count`) > 0 ORDER BY t.`source`",
        (subtask.task, tuple(writers), names[0].lower(), names[1].lower()),
    )
    if copied:
        error = errors.check_data.OTHER_ROWS_GONE(
            task=subtask.task,
            target=".".join(names),
            count=sum(int(str(count)) for _, count in copied),
            sources=", ".join(text_of(name) for name, _ in copied),
        )
        yield failed("downstream_table_empty", source, error)


def _has_rows(target: Session, found: Table, condition: str) -> bool:
    where = f" WHERE {condition}" if condition else ""
    return bool(rows(target, f"SELECT 1 FROM {TargetTable(found.schema, found.name).quoted}{where} LIMIT 1"))


def _recorded_writers(target: Session, start: StartRequest) -> Mapping[tuple[str, str], frozenset[str]]:
    """Which of the task's sources have a record of copying into a target table (names in lower case)."""
    try:
        found = rows(
            target,
            "SELECT DISTINCT `target_schema`, `target_table`, `source` FROM "
            f"{quote_name(start.subtask.meta_schema)}.`snapshot_table` WHERE `task` = %s",
            (start.subtask.task,),
        )
    except pymysql.MySQLError as error:
        if errno_of(error) not in (ER.BAD_DB_ERROR, ER.NO_SUCH_TABLE):
            raise
        return {}
    written: dict[tuple[str, str], frozenset[str]] = {}
    for schema, table, by in found:
        names, writer = (text_of(schema).lower(), text_of(table).lower()), text_of(by)
        if start.as_recorded or writer not in start.together:
            written[names] = written.get(names, frozenset()) | {writer}
    return written


def recorded_targets(target: Session, start: StartRequest) -> frozenset[tuple[str, str]]:
    """The target tables (names in lower case) into which the task writes, by the records that count for this start.
    Raises ``pymysql.MySQLError`` and the rules' errors."""
    return frozenset((*_recorded_writers(target, start), *_Streamed(target, start).found()))


class _Streamed:
    """Which of the task's sources apply changes to a target table without having copied into it: with task-mode
    incremental. The records are read when they are needed first."""

    def __init__(self, target: Session, start: StartRequest) -> None:
        self._target, self._start = target, start
        self._found: dict[tuple[str, str], frozenset[str]] | None = None

    def writers(self, schema: str, table: str) -> frozenset[str]:
        return self.found().get((schema.lower(), table.lower()), frozenset())

    def found(self) -> Mapping[tuple[str, str], frozenset[str]]:
        """The sources by target table, names in lower case."""
        if self._found is None:
            self._found = self._read()
        return self._found

    def _read(self) -> dict[tuple[str, str], frozenset[str]]:
        subtask, start = self._start.subtask, self._start
        try:
            members = read_target_members(self._target, who_of(subtask), of_task_alone=True)
        except pymysql.MySQLError as error:
            if errno_of(error) not in (ER.BAD_DB_ERROR, ER.NO_SUCH_TABLE):
                raise
            return {}
        found: dict[tuple[str, str], frozenset[str]] = {}
        for plan in (*members.own.values(), *members.same_task):
            if start.as_recorded or plan.source not in start.together:
                names = plan.target_schema.lower(), plan.target_table.lower()
                found[names] = found.get(names, frozenset()) | {plan.source}
        return found


def _table(
    source: str,
    target: Session,
    found: Table,
    group: list[TablePlan],
    shared: bool,
    removed: Mapping[str, KeyRange | ExtractedTexts],
    *,
    safe_mode: bool,
) -> Iterator[pb.CheckResult]:
    """``shared``: other sources of the task have written into it. ``removed``: the rows that the run removes before
    it copies, by shard table."""
    name = f"{found.schema}.{found.name}"
    item = "downstream_table_empty"
    if group and all(isinstance(removed.get(plan.table.full_name), ExtractedTexts) for plan in group):
        return  # those of the earlier run are removed; others have other texts
    own = [_own_rows(plan, found) for plan in group]
    if shared and "" in own:
        return  # it cannot be determined which source wrote which rows
    conditions = [condition for condition in own if condition]
    if len(conditions) < len(own):
        conditions = [""]
    conditions_of_removed = {rows.condition for rows in removed.values()}
    for condition in conditions:
        if condition not in conditions_of_removed and _has_rows(target, found, condition):
            rest = f"where {condition}, which is for a shard table of source {source}" if condition else "any row"
            if safe_mode:
                yield warned(item, source, errors.check_data.TARGET_ROWS_OVERWRITTEN(target=name, found=rest))
            else:
                yield failed(item, source, errors.check_data.TARGET_NOT_EMPTY(target=name, found=rest))
            return
    if conditions != [""] and not (shared or removed) and _has_rows(target, found, ""):
        yield warned(item, source, errors.check_data.TARGET_ROWS_BESIDE(target=name))


def _own_rows(plan: TablePlan, found: Table) -> str:
    """A condition, usable by an index, of the rows that only this shard table can have; "" if there is none."""
    leading = {unique[0].lower() for unique in found.unique_keys}
    for column in plan.columns:
        mapping = column.mapping
        if isinstance(mapping, PartitionId) and not mapping.is_shared and column.target_name.lower() in leading:
            return f"{quote_name(column.target_name)} BETWEEN {mapping.prefix} AND {mapping.last}"
    return ""
