"""`dmctl schema`: the target tables of a subtask, and how its shard tables differ; creates and records nothing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from itertools import groupby

from shardmerge.proto import config_pb2, worker_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc.coded_errors import error_to_proto
from shardmerge.worker.core.mysql.connection import Endpoint, Session, Side, coded_errors, connect
from shardmerge.worker.core.mysql.show_create import CreateStatement, read_create_statement
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.rules import Rules
from shardmerge.worker.target.tables.make_targets import plans_for, read_structures_and_creations
from shardmerge.worker.target.tables.shard_groups import SHOWN_TABLES, ShardDefinition, groups_of
from shardmerge.worker.target.tables.target_table import check_existing_target, creation_of, find_target

_ANSWER_SECONDS = 60.0

Shard = tuple[TablePlan, CreateStatement]


def show_targets(request: worker_pb2.WorkerExplainRulesRequest) -> worker_pb2.WorkerShowTargetsResponse:
    """Every target table of the source's shard tables, or of the named ones, by name.

    Raises the rules' errors and coded errors of both servers.
    """
    source = request.source.source_id
    wanted = {(each.schema, each.table) for each in request.tables}
    shards = [
        (plan, creation)
        for plan, creation in _read_source(request.source, Rules.from_config(request.subtask))
        if not wanted or (plan.table.schema, plan.table.name) in wanted
    ]
    shards.sort(key=lambda shard: (shard[0].target, shard[0].table.full_name))
    endpoint = Endpoint.from_proto(request.subtask.target)
    answer = worker_pb2.WorkerShowTargetsResponse()
    with (
        closing(connect(endpoint, Side.TARGET, name="target", read_timeout=_ANSWER_SECONDS)) as session,
        coded_errors(endpoint, Side.TARGET, source),
    ):
        for _, merged in groupby(shards, key=lambda shard: shard[0].target):
            answer.targets.append(_target(session, list(merged)))
    return answer


def _read_source(source: config_pb2.SourceConfig, rules: Rules) -> list[Shard]:
    endpoint = Endpoint.from_proto(getattr(source, "from"))
    with (
        closing(connect(endpoint, Side.SOURCE, name=source.source_id, read_timeout=_ANSWER_SECONDS)) as session,
        coded_errors(endpoint, Side.SOURCE, source.source_id),
    ):
        tables, creations = read_structures_and_creations(session, rules, source.source_id)
    by_number = dict(enumerate(creations))
    return [(plan, by_number[plan.shard]) for plan in plans_for(rules, source.source_id, tables)]


def _target(session: Session, shards: Sequence[Shard]) -> worker_pb2.TargetSchema:
    """``shards``: those with the same target."""
    first = shards[0][0]
    shown = worker_pb2.TargetSchema(target=first.target_name)
    try:
        groups = groups_of(
            ShardDefinition(
                f"{plan.table.schema}.{plan.table.name}", creation.text, creation_of(session, plan, creation)
            )
            for plan, creation in shards
        )
        found = find_target(session, first)
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
