"""The worker's answers about keys of shard tables; the master brings several workers' together."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from random import Random

from proto import config_pb2 as config
from proto import worker_pb2 as pb
from worker.check.findings import READ_SECONDS
from worker.check.keyed import MergedKey, merged_keys
from worker.check.keyproof import proven_keys
from worker.check.keysample import looked_up, sampled, samples_each
from worker.check.source import look_at
from worker.check.tables import look_at_tables
from worker.connection import Endpoint, Session, Side, coding, connect
from worker.plan import TablePlan
from worker.rules import Rules


@contextmanager
def _asking(request: pb.CheckKeysRequest | pb.ReadKeysRequest) -> Generator[tuple[Session, Session, list[MergedKey]]]:
    """(session at the source, at the target, keys of all target tables). Server errors leave as coded errors."""
    endpoint = Endpoint.from_proto(getattr(request.source, "from"))
    name = request.source.source_id
    with (
        closing(connect(endpoint, Side.SOURCE, name=name, read_timeout=READ_SECONDS)) as session,
        closing(_target(request.subtask)) as target,
        coding(endpoint, Side.SOURCE, name),
    ):
        yield session, target, merged_keys(target, _plans(session, request))


def check_keys(request: pb.CheckKeysRequest) -> pb.CheckKeysResponse:
    """Samples, or what was found of others' samples. Raises coded errors."""
    with _asking(request) as (session, target, keys):
        if request.looked_for:
            clashes, count = looked_up(session, target, keys, request.looked_for)
            return pb.CheckKeysResponse(clashes=clashes, looked_up=count)
        random, count = Random(), samples_each(len(keys))  # noqa: S311 - no secret: each run is to look elsewhere
        return pb.CheckKeysResponse(shards=[sampled(session, key, count, random) for key in keys])


def read_keys(request: pb.ReadKeysRequest) -> Iterator[pb.KeyBatch]:
    """See :func:`worker.check.keyproof.proven_keys`."""
    with _asking(request) as (_, _, found):
        keys = [key for key in found if _is_asked(key, request)]
    if keys:
        yield from proven_keys(request.source, keys, digests=request.digests)


def _is_asked(key: MergedKey, request: pb.ReadKeysRequest) -> bool:
    names = (key.plan.target_schema, key.plan.target_table, key.names)
    return names == (request.target_schema, request.target_table, tuple(request.columns))


def _target(subtask: config.SubTaskConfig) -> Session:
    return connect(Endpoint.from_proto(subtask.target), Side.TARGET, name="target", read_timeout=READ_SECONDS)


def _plans(session: Session, request: pb.CheckKeysRequest | pb.ReadKeysRequest) -> Sequence[TablePlan]:
    """Of the tables that can be planned: the others are item table_schema's. Raises ``pymysql.MySQLError``."""
    return look_at_tables(look_at(request.source, session), Rules.from_config(request.subtask)).plans
