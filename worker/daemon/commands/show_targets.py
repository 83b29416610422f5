"""`dmctl schema`: the target tables of a subtask, and how its shard tables differ; creates and records nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import closing
from itertools import groupby

import pymysql
from pymysql.constants import ER

from shardmerge.proto import config_pb2, worker_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc.coded_errors import error_to_proto
from shardmerge.worker.core.mysql.connection import Endpoint, Session, Side, coded_errors, connect
from shardmerge.worker.core.mysql.server_errors import errno_of
from shardmerge.worker.core.mysql.show_create import CreateStatement, read_create_statement
from shardmerge.worker.core.sql.foreign_keys import foreign_keys
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.relations import relations_of
from shardmerge.worker.target.members.target_members import subtask_plans
from shardmerge.worker.target.records import ddl_progress, parked_tables, subtask_record
from shardmerge.worker.target.records.joining_tables import Joining
from shardmerge.worker.target.records.partitioning import Partitioning
from shardmerge.worker.target.tables.extracted_keys import created_keys
from shardmerge.worker.target.tables.foreign_key_ddl import KeyStatements, LeftOut, TargetKey, target_keys
from shardmerge.worker.target.tables.make_targets import plans_for, read_structures_and_creations
from shardmerge.worker.target.tables.shard_groups import SHOWN_TABLES, ShardDefinition, groups_of
from shardmerge.worker.target.tables.target_table import check_existing_target, creation_of, find_target
from shardmerge.worker.unit.run_context import who_of

_ANSWER_SECONDS = 60.0

Shard = tuple[TablePlan, CreateStatement]


def show_targets(request: worker_pb2.WorkerExplainRulesRequest) -> worker_pb2.WorkerShowTargetsResponse:
    """Every target table of the source's shard tables, or of the named ones, by name.

    Raises the rules' errors and coded errors of both servers.
    """
    source = request.source.source_id
    rules = Rules.from_config(request.subtask)
    every_shard = _read_source(request.source, rules)
    wanted = {(each.schema, each.table) for each in request.tables}
    shards = [
        (plan, creation)
        for plan, creation in every_shard
        if not wanted or (plan.table.schema, plan.table.name) in wanted
    ]
    shards.sort(key=lambda shard: (shard[0].target, shard[0].table.full_name))
    endpoint = Endpoint.from_proto(request.subtask.target)
    answer = worker_pb2.WorkerShowTargetsResponse()
    with (
        closing(connect(endpoint, Side.TARGET, name="target", read_timeout=_ANSWER_SECONDS)) as session,
        coded_errors(endpoint, Side.TARGET, source),
    ):
        keys = _foreign_keys(session, rules, every_shard, {plan.shard for plan, _ in shards})
        for target, merged in groupby(shards, key=lambda shard: shard[0].target):
            answer.targets.append(_target(session, list(merged), request.subtask, rules))
            answer.targets[-1].foreign_keys.extend(keys.get(target, ()))
    return answer


def _foreign_keys(
    session: Session, rules: Rules, shards: Sequence[Shard], wanted: Collection[int]
) -> dict[TargetTable, list[worker_pb2.TargetForeignKey]]:
    """The foreign keys of the ``wanted`` shard tables, by the target."""
    plans = [plan for plan, _ in shards]
    creations = {plan.shard: creation.text for plan, creation in shards}
    related = [each for each in relations_of(rules, plans, creations) if each.child.shard in wanted]
    existing: dict[TargetTable, Table | None] = {}

    def table_of(plan: TablePlan) -> Table | None:
        if plan.target not in existing:
            existing[plan.target] = find_target(session, plan)
        return existing[plan.target]

    def unique_keys(plan: TablePlan) -> Iterable[Sequence[str]]:
        table = table_of(plan)
        if table is not None:
            return table.unique_keys
        names = {column.column.name: column.target_name for column in plan.columns}
        keys = ([names.get(name, name) for name in key] for key in plan.table.unique_keys)
        return [(*key, *created_keys(plan).of(key)) for key in keys]

    found: dict[TargetTable, list[worker_pb2.TargetForeignKey]] = {}
    for key in target_keys(related, unique_keys):
        found.setdefault(key.target, []).append(_key_message(key))
    for target, keys in found.items():
        table = existing.get(target) or find_target(session, next(plan for plan in plans if plan.target == target))
        if table is not None:
            _mark_existing(keys, read_create_statement(session, table.schema, table.name).text)
    return found


def _key_message(key: TargetKey) -> worker_pb2.TargetForeignKey:
    shown = worker_pb2.TargetForeignKey(
        reference=key.reference, tables=key.tables[:SHOWN_TABLES], count=len(key.tables)
    )
    match key.made:
        case LeftOut(why=why):
            shown.left_out = why
        case KeyStatements(name=name, count=count, add=add, drop=drop):
            shown.name, shown.orphans, shown.add, shown.drop = name, count, add, drop
    return shown


def _mark_existing(keys: Iterable[worker_pb2.TargetForeignKey], creation: str) -> None:
    names = {key.name.lower() for key in foreign_keys(creation)}
    for key in keys:
        key.exists = bool(key.name) and key.name.lower() in names


def _read_source(source: config_pb2.SourceConfig, rules: Rules) -> list[Shard]:
    endpoint = Endpoint.from_proto(getattr(source, "from"))
    with (
        closing(connect(endpoint, Side.SOURCE, name=source.source_id, read_timeout=_ANSWER_SECONDS)) as session,
        coded_errors(endpoint, Side.SOURCE, source.source_id),
    ):
        tables, creations = read_structures_and_creations(session, rules, source.source_id)
    by_number = dict(enumerate(creations))
    return [(plan, by_number[plan.shard]) for plan in plans_for(rules, source.source_id, tables)]


def _as_recorded(
    session: Session, shards: Sequence[Shard], subtask: config_pb2.SubTaskConfig, rules: Rules
) -> Sequence[Shard]:
    """``shards`` with the structures that the subtask has recorded, if it has: a missing target is created from them,
    because statements that follow in the binlog change it. Raises the rules' errors."""
    who = who_of(subtask)
    try:
        row = subtask_record.read_row(session, who)
        if row is None:
            return shards
        partitioning, joining = Partitioning.from_json(row.partitioning), Joining.from_json(row.joining)
        plans = subtask_plans(session, who, partitioning, joining, parked_tables.read(session, who).keys())
        creations = ddl_progress.read_creations(session, who, plans.keys())
    except pymysql.MySQLError as error:
        if errno_of(error) not in (ER.BAD_DB_ERROR, ER.NO_SUCH_TABLE):
            raise
        return shards
    recorded = {(plan.table.schema, plan.table.name): plan for plan in plans.values() if plan.shard in creations}

    def of(plan: TablePlan, creation: CreateStatement) -> Shard:
        known = recorded.get((plan.table.schema, plan.table.name))
        if known is None or known.target != plan.target:
            return plan, creation
        return rules.plan(plan.shard, plan.source, known.table), creations[known.shard]

    return [of(*shard) for shard in shards]


def _target(
    session: Session, shards: Sequence[Shard], subtask: config_pb2.SubTaskConfig, rules: Rules
) -> worker_pb2.TargetSchema:
    """``shards``: those with the same target."""
    first = shards[0][0]
    shown = worker_pb2.TargetSchema(target=first.target_name)
    try:
        found = find_target(session, first)
        if found is None:
            shards = _as_recorded(session, shards, subtask, rules)
        groups = groups_of(
            ShardDefinition(
                f"{plan.table.schema}.{plan.table.name}", creation.text, creation_of(session, plan, creation)
            )
            for plan, creation in shards
        )
        shown.exists = found is not None
        shown.statement = groups[0].merged
        if found is not None:
            shown.statement = read_create_statement(session, found.schema, found.name).text
        for group in groups:
            shown.groups.add(
                count=len(group.names),
                examples=group.names[:SHOWN_TABLES],
                only_here=group.only_here,
                lacking=group.lacking,
                left_out=group.left_out,
            )
        check_existing_target(session, [plan for plan, _ in shards])
    except ShardmergeError as error:
        shown.error.CopyFrom(error_to_proto(error))
    return shown
