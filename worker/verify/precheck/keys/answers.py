"""Answers the master's requests for keys of shard tables; the master combines the answers of several workers."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from random import Random

from shardmerge.proto import config_pb2 as config
from shardmerge.proto import worker_pb2 as pb
from shardmerge.worker.core.mysql.connection import Endpoint, Session, Side, coded_errors, connect
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.rules import Rules
from shardmerge.worker.verify.precheck.findings import READ_SECONDS
from shardmerge.worker.verify.precheck.keys.key_proof import read_sorted_keys
from shardmerge.worker.verify.precheck.keys.key_samples import look_up, sample, samples_each
from shardmerge.worker.verify.precheck.keys.merged_keys import MergedKey, merged_keys
from shardmerge.worker.verify.precheck.source.server import open_source
from shardmerge.worker.verify.precheck.tables import read_view


@contextmanager
def _opened(request: pb.CheckKeysRequest | pb.ReadKeysRequest) -> Generator[tuple[Session, Session, list[MergedKey]]]:
    """(session at the source, at the target, keys of all target tables). Server errors become coded errors."""
    endpoint = Endpoint.from_proto(getattr(request.source, "from"))
    name = request.source.source_id
    with (
        closing(connect(endpoint, Side.SOURCE, name=name, read_timeout=READ_SECONDS)) as session,
        closing(_target(request.subtask)) as target,
        coded_errors(endpoint, Side.SOURCE, name),
    ):
        yield session, target, merged_keys(target, _plans(session, request))


def check_keys(request: pb.CheckKeysRequest) -> pb.CheckKeysResponse:
    """Sample keys, or look up samples of other shard tables. Raises coded errors."""
    with _opened(request) as (session, target, keys):
        if request.looked_for:
            clashes, count = look_up(session, target, keys, request.looked_for)
            return pb.CheckKeysResponse(clashes=clashes, looked_up=count)
        random, count = Random(), samples_each(len(keys))  # noqa: S311 - no secret: each run takes other samples
        return pb.CheckKeysResponse(shards=[sample(session, key, count, random) for key in keys])


def read_keys(request: pb.ReadKeysRequest) -> Iterator[pb.KeyBatch]:
    """See :func:`shardmerge.worker.verify.precheck.keys.key_proof.read_sorted_keys`."""
    with _opened(request) as (_, _, found):
        keys = [key for key in found if _is_requested(key, request)]
    if keys:
        yield from read_sorted_keys(request.source, keys, digests=request.digests)


def _is_requested(key: MergedKey, request: pb.ReadKeysRequest) -> bool:
    names = (key.plan.target_schema, key.plan.target_table, key.names)
    return names == (request.target_schema, request.target_table, tuple(request.columns))


def _target(subtask: config.SubTaskConfig) -> Session:
    return connect(Endpoint.from_proto(subtask.target), Side.TARGET, name="target", read_timeout=READ_SECONDS)


def _plans(session: Session, request: pb.CheckKeysRequest | pb.ReadKeysRequest) -> Sequence[TablePlan]:
    """The plans of the tables that can be planned; item table_schema reports the others. Raises
    ``pymysql.MySQLError``."""
    return read_view(open_source(request.source, session), Rules.from_config(request.subtask)).plans
