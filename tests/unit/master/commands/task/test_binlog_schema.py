"""binlog-schema: what a request has to say."""

from __future__ import annotations

import pytest

from shardmerge.master.commands.task.binlog_schema import check
from shardmerge.proto import errors, worker_pb2
from shardmerge.proto import master_pb2 as pb

NAMED = pb.OperateSchemaRequest(op=worker_pb2.SCHEMA_OP_UPDATE, task="merge", database="d", table="a")


def _with(**given: object) -> pb.OperateSchemaRequest:
    request = pb.OperateSchemaRequest(**given)  # type: ignore[arg-type]
    full = pb.OperateSchemaRequest()
    full.CopyFrom(NAMED)
    full.MergeFrom(request)
    return full


@pytest.mark.parametrize(
    "request_",
    [
        pb.OperateSchemaRequest(task="merge", database="d", table="a"),
        pb.OperateSchemaRequest(op=worker_pb2.SCHEMA_OP_LIST, database="d", table="a"),
        pb.OperateSchemaRequest(op=worker_pb2.SCHEMA_OP_LIST, task="merge", table="a"),
        pb.OperateSchemaRequest(op=worker_pb2.SCHEMA_OP_DELETE, task="merge", database="d"),
        NAMED,
        _with(schema=" \n"),
        _with(from_source=True, from_target=True),
        _with(schema="CREATE TABLE a (id INT)", from_source=True),
    ],
)
def test_half_a_request_is_refused(request_: pb.OperateSchemaRequest) -> None:
    with pytest.raises(errors.ShardmergeError) as refused:
        check(request_)
    assert refused.value.spec is errors.master.BAD_REQUEST


@pytest.mark.parametrize(
    "request_",
    [
        _with(schema="CREATE TABLE a (id INT)"),
        _with(from_source=True),
        _with(from_target=True),
        _with(op=worker_pb2.SCHEMA_OP_LIST),
        _with(op=worker_pb2.SCHEMA_OP_DELETE),
    ],
)
def test_a_whole_one_is_taken(request_: pb.OperateSchemaRequest) -> None:
    check(request_)
