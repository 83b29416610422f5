"""Checks the columns that routes extract from names in the unique keys of target tables, and reports which keys have
them.

A task never alters an existing table: where its keys need the columns, the check prints the ALTER TABLE.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pymysql

from shardmerge.proto import errors
from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Session, server_info
from shardmerge.worker.core.mysql.show_create import CreateStatement, read_create_statement, read_shard_statements
from shardmerge.worker.core.sql.table_text import Index, UnreadableCreateTable, read_create_table
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import ExtractInKey, TablePlan, TargetTable
from shardmerge.worker.target.tables.target_table import creation_of, find_target
from shardmerge.worker.verify.precheck.findings import Checklist, failed, passed, warned
from shardmerge.worker.verify.precheck.source.server import ConnectedSource
from shardmerge.worker.verify.precheck.target.existing_rows import StartRequest, recorded_targets
from shardmerge.worker.verify.precheck.target.key_length import MARIADB, OTHERS, KeyLimits
from shardmerge.worker.verify.precheck.target.missing_in_keys import (
    ExistingTarget,
    TooLong,
    collide,
    missing_columns,
    repair_statement,
    too_long,
)

_ITEM = "extracted_columns"


def check_extracted_columns(
    checklist: Checklist,
    view: ConnectedSource | None,
    target: Session,
    plans: Sequence[TablePlan],
    start: StartRequest,
    *,
    sources: int,
) -> None:
    """``sources``: how many sources the task has."""

    def find() -> Iterator[pb.CheckResult]:
        try:
            yield from _ExtractedColumns(checklist.source, view, target, start, sources).results(plans)
        except UnreadableCreateTable as error:
            way_out = f"Compare the keys of the target tables by hand, and leave the item {_ITEM} out."
            broken = errors.check.CHECK_BROKEN(server="target", reason=str(error), way_out=way_out)
            yield failed(_ITEM, checklist.source, broken)

    checklist.run(_ITEM, find, privilege_of="target_privilege")


class _ExtractedColumns:
    def __init__(
        self, source: str, view: ConnectedSource | None, target: Session, start: StartRequest, sources: int
    ) -> None:
        self._source, self._view, self._target = source, view, target
        self._start, self._sources = start, sources
        self._limits: KeyLimits = MARIADB if server_info(target).is_mariadb else OTHERS
        self._notes: list[str] = []

    def results(self, plans: Sequence[TablePlan]) -> Iterator[pb.CheckResult]:
        groups: dict[TargetTable, list[TablePlan]] = {}
        for plan in plans:
            if plan.constant_columns:
                groups.setdefault(plan.target, []).append(plan)
        found: list[pb.CheckResult] = []
        for group in groups.values():
            there = find_target(self._target, group[0])
            found += self._created(group[0]) if there is None else self._existing(there, group)
        if found or not groups:
            yield from found
        else:
            yield passed(_ITEM, self._source, "; ".join(self._notes))

    def _created(self, plan: TablePlan) -> Iterator[pb.CheckResult]:
        if self._view is None:
            return
        try:
            [described] = read_shard_statements(self._view.session, [(plan.table.schema, plan.table.name)])
            creation = CreateStatement(creation_of(self._target, plan, described), described.collation)
        except (ShardmergeError, pymysql.MySQLError):
            return  # other items report why it cannot be created
        long = too_long(creation, plan, self._limits)
        if long is not None:
            yield self._too_long(long, f"{plan.target_schema}.{plan.target_table}")
        self._note(plan, read_create_table(creation.text).unique_keys, "will have")

    def _existing(self, there: Table, group: Sequence[TablePlan]) -> Iterator[pb.CheckResult]:
        creation = read_create_statement(self._target, there.schema, there.name)
        existing, keys = ExistingTarget(there, creation, tuple(group)), read_create_table(creation.text).unique_keys
        missing = missing_columns(existing)
        is_alone = self._sources == 1 and len(group) == 1
        if missing and not is_alone:
            statement = repair_statement(existing, missing, self._limits)
            if isinstance(statement, TooLong):
                yield self._too_long(statement, existing.name)
                return
            error = errors.check_data.EXTRACTED_NOT_IN_KEY(
                target=existing.name,
                keys=", ".join(each.key.shown for each in missing),
                columns=", ".join(dict.fromkeys(name for each in missing for name in each.columns)),
                statement=statement,
            )
            # A target keeps the keys with which the task began.
            names = there.schema.lower(), there.name.lower()
            has_begun = names in recorded_targets(self._target, self._start)
            refuses = collide(missing, keys, group[0]) and not has_begun
            yield failed(_ITEM, self._source, error) if refuses else warned(_ITEM, self._source, error)
        self._note(group[0], keys, "has")

    def _too_long(self, long: TooLong, target: str) -> pb.CheckResult:
        error = errors.check_data.EXTRACTED_KEY_TOO_LONG(
            target=target,
            key=long.key.shown,
            columns=", ".join(long.columns),
            found=long.found,
            limit=long.limit,
        )
        return failed(_ITEM, self._source, error)

    def _note(self, plan: TablePlan, keys: Sequence[Index], verb: str) -> None:
        listed = ", ".join(f"{key.shown}{_reason(plan, key)}" for key in keys) or "no unique key"
        self._notes.append(f"{plan.target_schema}.{plan.target_table} {verb} {listed}")


def _reason(plan: TablePlan, key: Index) -> str:
    """Why a key has no extracted column, for people."""
    names = {name.lower() for name in key.columns}
    if names & {name.lower() for name in plan.constant_columns}:
        return ""
    if plan.extract_in_key is ExtractInKey.NEVER:
        return " without extracted columns (extract-in-key: never)"
    if plan.extract_in_key is ExtractInKey.AUTO and names & plan.own_columns:
        return " without extracted columns (`partition id` keeps its values apart)"
    return " without extracted columns"
