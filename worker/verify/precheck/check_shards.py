"""Answers the master's requests for the structures of shard tables: reads those of a source, or compares those of all.

Shard tables of equal structure are compared once, so a thousand of them cost little more than one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace

from pydantic import TypeAdapter, ValidationError

from shardmerge.proto import config_pb2 as config
from shardmerge.proto import errors
from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Endpoint, Session, Side, coded_errors, connect, dialect_of
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.rules import Rules
from shardmerge.worker.target.tables.target_table import created_collations, find_target, required_columns
from shardmerge.worker.verify.precheck.findings import READ_SECONDS
from shardmerge.worker.verify.precheck.recorded import as_recorded
from shardmerge.worker.verify.precheck.shard_structures import ShardGroup, compare_shards, structure_key
from shardmerge.worker.verify.precheck.source.server import open_source
from shardmerge.worker.verify.precheck.tables import read_view

_SHOWN_CHARS = 100
_TABLE_JSON: TypeAdapter[Table] = TypeAdapter(Table)


def check_shards(request: pb.CheckShardsRequest) -> pb.CheckShardsResponse:
    """Read the structures, or compare those of the request. Raises coded errors and the rules' errors."""
    if request.structures:
        return pb.CheckShardsResponse(results=_compared(request))
    source = request.source.source_id
    at_source = Endpoint.from_proto(getattr(request.source, "from"))
    at_target = Endpoint.from_proto(request.subtask.target)
    with (
        closing(connect(at_source, Side.SOURCE, name=source, read_timeout=READ_SECONDS)) as session,
        closing(connect(at_target, Side.TARGET, name="target", read_timeout=READ_SECONDS)) as target,
        coded_errors(at_source, Side.SOURCE, source),
    ):
        plans = read_view(open_source(request.source, session), Rules.from_config(request.subtask)).plans
        with coded_errors(at_target, Side.TARGET, source):
            if request.as_recorded:
                plans = as_recorded(target, request.subtask, plans)
            dialect = dialect_of(target)
            plans = tuple(replace(plan, text_as_utf8=not dialect.has_charsets) for plan in plans)
            existing = {
                plan.target: find_target(target, plan) is not None
                for plan in {plan.target: plan for plan in plans}.values()
            }
            structures = list(_structures(session, target, plans, existing))
        return pb.CheckShardsResponse(structures=structures)


def _structures(
    session: Session, target: Session, plans: Sequence[TablePlan], existing: Mapping[TargetTable, bool]
) -> Iterator[pb.ShardStructure]:
    json_is_text = dialect_of(target).is_mariadb
    groups: dict[tuple[object, ...], list[TablePlan]] = {}
    makers: dict[TargetTable, TablePlan] = {}
    for plan in plans:
        groups.setdefault(structure_key(plan), []).append(plan)
        makers.setdefault(plan.target, plan)
    for group in groups.values():
        first = group[0]
        makes_target = makers[first.target] is first
        names = {item.column.name.lower(): item.target_name.lower() for item in first.columns}
        required = required_columns(session, first.table) if makes_target else frozenset[str]()
        yield pb.ShardStructure(
            source=first.source,
            target=first.target_name,
            structure=_TABLE_JSON.dump_json(first.table.structure).decode(),
            makes_target=makes_target,
            target_exists=existing[first.target],
            text_as_utf8=first.text_as_utf8,
            json_is_text=json_is_text,
            required=sorted(names[name] for name in required & names.keys()),
            replaced=created_collations(target, first.table.collations) if makes_target else {},
        )


def _table_of(text: str) -> Table:
    try:
        return _TABLE_JSON.validate_json(text)
    except ValidationError as error:
        raise _refused("structure", "must be a table", text[:_SHOWN_CHARS]) from error


def _refused(field: str, rule: str, value: str) -> ShardmergeError:
    return errors.master.FIELD_REFUSED(field=f"structures.{field}", method="CheckShards", rule=rule, value=value)


def _compared(request: pb.CheckShardsRequest) -> Iterator[pb.CheckResult]:
    checked = frozenset(request.checked)
    family = {one.source_id: one for one in request.family}
    sources = {one.source for one in request.structures}
    if strangers := sources - family.keys():
        raise _refused("source", "must be of a subtask in family", min(strangers))
    rules = {source: Rules.from_config(family[source]) for source in sources}
    groups: dict[TargetTable, list[ShardGroup]] = {}
    existing: set[TargetTable] = set()
    for one in request.structures:
        plan = rules[one.source].plan(0, one.source, _table_of(one.structure))
        group = ShardGroup(
            replace(plan, text_as_utf8=one.text_as_utf8),
            one.makes_target,
            frozenset(one.required),
            one.source in checked,
            one.json_is_text,
            dict(one.replaced),
        )
        groups.setdefault(plan.target, []).append(group)
        if one.target_exists:
            existing.add(plan.target)
    widens = request.subtask.shard_mode == config.SHARD_MODE_OPTIMISTIC
    for target, found in groups.items():
        yield from compare_shards(found, exists=target in existing, widens=widens)
