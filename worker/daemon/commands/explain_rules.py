"""`dmctl rules`: explains how a subtask's rules treat the tables of its source; runs and records nothing."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field

from shardmerge.proto import config_pb2, worker_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc.coded_errors import error_to_proto
from shardmerge.worker.core.mysql.connection import Endpoint, Side, coded_errors, connect
from shardmerge.worker.core.mysql.information_schema import inspect_tables, list_tables
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.rules import Explained, Rules, check_partitions, explain

_ANSWER_SECONDS = 60.0

Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _SourceTables:
    """The requested tables that the source has. ``structures``: of those that the rules let through, or the error of
    each that cannot be described."""

    names: tuple[Name, ...] = ()
    structures: Mapping[Name, Table | ShardmergeError] = field(default_factory=dict[Name, "Table | ShardmergeError"])


def explain_rules(request: worker_pb2.WorkerExplainRulesRequest) -> worker_pb2.WorkerExplainRulesResponse:
    """Explain every table of the source, or the named tables, which need not exist.

    Raises the patterns' errors, and without named tables the source's.
    """
    rules = Rules.from_config(request.subtask)
    wanted = tuple((each.schema, each.table) for each in request.tables)
    answer = worker_pb2.WorkerExplainRulesResponse()
    seen: _SourceTables | None = None
    try:
        seen = _read_source(request.source, rules, wanted)
    except ShardmergeError as error:
        if not wanted:
            raise
        answer.unseen.CopyFrom(error_to_proto(error))
    plans: list[TablePlan] = []
    for name in wanted or (seen.names if seen is not None else ()):
        structure = seen.structures.get(name) if seen is not None else None
        table = structure if isinstance(structure, Table) else None
        explained = explain(rules, *name, table)
        error = explained.error or (structure if isinstance(structure, ShardmergeError) else None)
        if table is not None and error is None and explained.takes_part:
            try:
                plans.append(rules.plan(len(plans), request.source.source_id, table))
            except ShardmergeError as refused:
                error = refused
        shown = _table_rules(request.source.source_id, name, explained, error)
        shown.existence = "unseen" if seen is None else "exists" if name in seen.names else "missing"
        answer.tables.append(shown)
    try:
        check_partitions(plans)
    except ShardmergeError as error:
        answer.error.CopyFrom(error_to_proto(error))
    return answer


def _read_source(source: config_pb2.SourceConfig, rules: Rules, wanted: tuple[Name, ...]) -> _SourceTables:
    endpoint = Endpoint.from_proto(getattr(source, "from"))
    with (
        closing(connect(endpoint, Side.SOURCE, name=source.source_id, read_timeout=_ANSWER_SECONDS)) as session,
        coded_errors(endpoint, Side.SOURCE, source.source_id),
    ):
        names = [name for name in list_tables(session) if not wanted or name in wanted]
        described = [name for name in names if rules.judge(*name).passes]
        structures: dict[Name, Table | ShardmergeError] = {}
        for table in inspect_tables(session, described, source=source.source_id):
            if isinstance(table, Table):
                structures[table.schema, table.name] = table
            else:
                structures[table.values.get("schema", ""), table.values.get("table", "")] = table
        return _SourceTables(tuple(names), structures)


def _table_rules(source: str, name: Name, explained: Explained, error: ShardmergeError | None) -> worker_pb2.TableRules:
    schema, table = name
    target = explained.target
    return worker_pb2.TableRules(
        source=source,
        schema=schema,
        table=table,
        takes_part=explained.takes_part,
        target=TargetTable(target.target_schema, target.target_table).quoted if target is not None else "",
        rules=[
            worker_pb2.AppliedRule(kind=each.kind, name=each.name, text=each.text, beaten=each.overridden)
            for each in explained.rules
        ],
        error=error_to_proto(error) if error is not None else None,
    )
