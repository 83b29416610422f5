"""The worker's answers about keys of shard tables; the master brings several workers' together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from random import Random

from proto import config_pb2 as config
from proto import worker_pb2 as pb
from proto.errors import ShardmergeError
from worker.check.findings import READ_SECONDS
from worker.check.keyed import MergedKey, merged_keys
from worker.check.keyproof import proven_keys
from worker.check.keysample import looked_up, sampled, samples_each
from worker.connection import Endpoint, Session, Side, coding, connect
from worker.plan import TablePlan
from worker.rules import Rules
from worker.schema import inspect_tables, list_tables


def check_keys(request: pb.CheckKeysRequest) -> pb.CheckKeysResponse:
    """Samples, or what was found of others' samples. Raises coded errors."""
    endpoint = Endpoint.from_proto(getattr(request.source, "from"))
    name = request.source.source_id
    with (
        closing(connect(endpoint, Side.SOURCE, name=name, read_timeout=READ_SECONDS)) as session,
        closing(_target(request.subtask)) as target,
        coding(endpoint, Side.SOURCE, name),
    ):
        keys = merged_keys(target, _plans(session, request.subtask))
        if request.looked_for:
            clashes, count = looked_up(session, target, keys, request.looked_for)
            return pb.CheckKeysResponse(clashes=clashes, looked_up=count)
        random, count = Random(), samples_each(len(keys))  # noqa: S311 - no secret: each run is to look elsewhere
        return pb.CheckKeysResponse(shards=[sampled(session, key, count, random) for key in keys])


def read_keys(request: pb.ReadKeysRequest) -> Iterator[pb.KeyBatch]:
    """See :func:`worker.check.keyproof.proven_keys`."""
    endpoint = Endpoint.from_proto(getattr(request.source, "from"))
    name = request.source.source_id
    with (
        closing(connect(endpoint, Side.SOURCE, name=name, read_timeout=READ_SECONDS)) as session,
        closing(_target(request.subtask)) as target,
        coding(endpoint, Side.SOURCE, name),
    ):
        keys = [key for key in merged_keys(target, _plans(session, request.subtask)) if _is_asked(key, request)]
    if keys:
        yield from proven_keys(request.source, keys, digests=request.digests)


def _is_asked(key: MergedKey, request: pb.ReadKeysRequest) -> bool:
    names = (key.plan.target_schema, key.plan.target_table, key.names)
    return names == (request.target_schema, request.target_table, tuple(request.columns))


def _target(subtask: config.SubTaskConfig) -> Session:
    return connect(Endpoint.from_proto(subtask.target), Side.TARGET, name="target", read_timeout=READ_SECONDS)


def _plans(session: Session, subtask: config.SubTaskConfig) -> Sequence[TablePlan]:
    """Of the tables that can be planned: the others are item table_schema's. Raises ``pymysql.MySQLError``."""
    rules = Rules.from_config(subtask)
    plans: list[TablePlan] = []
    names: list[tuple[str, str]] = []
    for schema, name in list_tables(session):
        try:
            if rules.route(schema, name) is not None:
                names.append((schema, name))
        except ShardmergeError:
            continue
    for table in inspect_tables(session, names, source=subtask.source_id):
        if isinstance(table, ShardmergeError):
            continue
        try:
            plans.append(rules.plan(len(plans), subtask.source_id, table))
        except ShardmergeError:
            continue
    return plans
