"""What fields of requests may hold: every string field is decided on, and what breaks its rule is named."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from shardmerge.proto import compare_pb2, errors, master_pb2, relay_pb2, worker_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.escaped_text import escaped, has_controls
from shardmerge.proto.rpc.fields import COUNTS, LINES, NAMED, NUMBERS, TEXTS, check_fields
from shardmerge.proto.rpc.wire import Undecodable, has_more_fields

_FILES = (master_pb2, worker_pb2, relay_pb2, compare_pb2)


def _requests() -> Iterator[Descriptor]:
    for file in _FILES:
        for service in file.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                yield method.input_type


def _fields(of: Descriptor, path: str, seen: set[str]) -> Iterator[tuple[str, FieldDescriptor]]:
    """Message.field of all that a request can hold; of a map Message.field.key and .value."""
    if of.full_name in seen and not of.GetOptions().map_entry:
        return
    seen.add(of.full_name)
    for field in of.fields:
        name = f"{path or of.name}.{field.name}"
        yield name, field
        inner = field.message_type
        if inner is not None:
            yield from _fields(inner, name if inner.GetOptions().map_entry else "", seen)


def _all_fields() -> dict[str, FieldDescriptor]:
    seen: set[str] = set()
    return {name: field for request in _requests() for name, field in _fields(request, "", seen)}


def test_every_string_field_of_every_request_is_decided_on() -> None:
    """A new one belongs into TEXTS, or into LINES if the rule of every string is right for it, unless its name alone
    decides."""
    strings = {name for name, field in _all_fields().items() if field.type == FieldDescriptor.TYPE_STRING}
    named = {name for name in strings if name.rpartition(".")[2] in NAMED}
    assert len(strings) > 100
    assert not strings - TEXTS.keys() - LINES - named, "no rule"
    assert not TEXTS.keys() - strings, "no such string"
    assert not TEXTS.keys() & LINES


def test_the_tables_name_fields_that_there_are() -> None:
    fields = _all_fields()
    assert not COUNTS.keys() - {name for name, field in fields.items() if field.is_repeated}
    assert not NUMBERS.keys() - fields.keys()


_HandleBinlog = master_pb2.HandleBinlogRequest


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (_HandleBinlog(binlog_pos="../../etc:4"), "binlog_pos"),
        (_HandleBinlog(binlog_pos="mysql-bin.000001"), "binlog_pos"),
        (_HandleBinlog(binlog_pos="mysql-bin.000001:x"), "binlog_pos"),
        (_HandleBinlog(binlog_pos="..:4"), "binlog_pos"),
        (_HandleBinlog(sources=["a", "b\nc"]), "sources[1]"),
        (_HandleBinlog(task="../etc"), "task"),
        (_HandleBinlog(task="t" * 65), "task"),
        (_HandleBinlog(sqls="SELECT \0"), "sqls"),
        (_HandleBinlog(op=77), "op"),  # type: ignore[arg-type]
        (_HandleBinlog(sources=["s"] * 10_001), "sources"),
        (master_pb2.PurgeRelayRequest(filename="/etc/passwd"), "filename"),
        (worker_pb2.WorkerPurgeRelayRequest(sub_dir=".."), "sub_dir"),
        (relay_pb2.LaneReport(position={"file": "a/b"}), "position.file"),
        (relay_pb2.LaneReport(position={"gtid_set": "'; DROP"}), "position.gtid_set"),
        (relay_pb2.LaneReport(commit_time=float("nan")), "commit_time"),
        (relay_pb2.LaneReport(commit_time=float("inf")), "commit_time"),
        (relay_pb2.LaneReport(rows=1 << 60), "rows"),
        (relay_pb2.LaneReport(os_pid=-1), "os_pid"),
        (relay_pb2.LaneReport(who={"index": 70_000}), "who.index"),
        (relay_pb2.LaneReport(who={"task": "a/b"}), "who.task"),
        (relay_pb2.LaneReport(failed={"args": {"a\nb": "x"}}), "failed.args[0]"),
        (relay_pb2.ChunkReport(chunk={"lower": [b""] * 65}), "chunk.lower"),
        (compare_pb2.CompareRequest(most_rows=4_000_000_000), "most_rows"),
        (worker_pb2.CheckSourceRequest(source={"from": {"port": 65_536}}), "source.from.port"),
        (worker_pb2.CheckSourceRequest(source={"from": {"host": "a\nb"}}), "source.from.host"),
        (
            worker_pb2.CheckSubTaskRequest(family=[{}, {"routes": [{"target_schema": "x" * 300}]}]),
            "family[1].routes[0].target_schema",
        ),
    ],
)
def test_what_breaks_its_rule_is_refused_by_the_fields_name(request_: Message, field: str) -> None:
    with pytest.raises(ShardmergeError) as caught:
        check_fields(request_, "/a.B/C")
    assert caught.value.spec is errors.master.FIELD_REFUSED
    assert caught.value.values["field"] == field
    assert not has_controls(caught.value.message)
    assert len(caught.value.message) < 500


@pytest.mark.parametrize(
    "request_",
    [
        _HandleBinlog(
            op=_HandleBinlog.OP_INJECT, task="t", sources=["s-1"], binlog_pos="mysql-bin.000001:1234", sqls="a;\nb"
        ),
        _HandleBinlog(binlog_pos="mysql-bin.000001|4"),
        _HandleBinlog(task="täsk one"),
        master_pb2.StartTaskRequest(file={"name": "/etc/t.yaml", "content": "name: t\n\ttext: |\r\n  ü"}),
        master_pb2.StartTaskRequest(
            stop_at="3E11FA47-71CA-11E1-9E33-C80AA9429562:1-5,\n4E11FA47-71CA-11E1-9E33-C80AA9429562:1"
        ),
        relay_pb2.ChunkReport(chunk={"source_schema": "a\nb`'", "source_table": "雪" * 64, "lower": [b"\0\xff"]}),
        relay_pb2.LaneReport(who={"task": "t/compare"}, barrier=(1 << 63) | 4, position={"gtid_set": "0-1-100,1-2-3"}),
        relay_pb2.LaneReport(failed={"message": "two\nlines", "args": {"statement": "x\n" * 9}}),
        worker_pb2.CheckSourceRequest(source={"from": {"password": "\x01\n", "session": {"sql_mode": "A,B"}}}),
        master_pb2.QueryStatusRequest(),
    ],
)
def test_what_the_product_itself_sends_passes(request_: Message) -> None:
    check_fields(request_, "/a.B/C")


def test_escaping_keeps_a_text_on_its_line() -> None:
    assert escaped("a\nb\x1b[0m\u2028\u202e\x85ü雪") == r"a\x0ab\x1b[0m\u2028\u202e\x85ü雪"
    assert escaped("abcdef", 3) == "abc…"
    assert escaped("abc", 3) == "abc"


def test_fields_are_counted_before_a_message_is_parsed() -> None:
    of = cast("Descriptor", master_pb2.OperateSourceRequest.DESCRIPTOR)
    nested = master_pb2.OperateSourceRequest(files=[{"name": "n", "content": "c"}] * 10, source_ids=["s"])
    raw = nested.SerializeToString()
    assert not has_more_fields(raw, of, 31)
    assert has_more_fields(raw, of, 30)
    assert has_more_fields(b"\x12\x00" * 1000, of, 999)
    numbers = relay_pb2.LaneReport(rows=1 << 50, commit_time=1.5).SerializeToString()
    assert not has_more_fields(numbers, cast("Descriptor", relay_pb2.LaneReport.DESCRIPTOR), 2)
    for wrong in (b"\xff" * 20, b"\x12\x05a", b"\x0b", b"\x09\x00", b"\x12"):
        with pytest.raises(Undecodable):
            has_more_fields(wrong, of, 1000)
