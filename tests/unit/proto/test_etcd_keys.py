"""Keys and record values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto import common_pb2, errors, etcd_keys
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import state_pb2 as pb
from shardmerge.proto.errors import ShardmergeError

NAMES = st.text(min_size=1, max_size=20)


@given(NAMES, NAMES)
def test_names_come_back_from_keys(task: str, source: str) -> None:
    key = etcd_keys.subtask(task, source)
    assert etcd_keys.names(key, etcd_keys.SUBTASKS) == (task, source)
    assert key.startswith(etcd_keys.subtasks(task))
    assert etcd_keys.names(etcd_keys.epoch(task, source), etcd_keys.EPOCHS) == (task, source)
    assert etcd_keys.names(etcd_keys.worker(task), etcd_keys.WORKERS) == (task,)


@given(NAMES, NAMES)
def test_no_name_reaches_into_another_tasks_records(one: str, other: str) -> None:
    if one != other:
        assert not etcd_keys.subtask(one, "s").startswith(etcd_keys.subtasks(other))


def test_records_are_readable_text_and_come_back() -> None:
    record = pb.SubTaskRecord(
        config=config.SubTaskConfig(task="t", source_id="ä", target=config.Endpoint(session={"a": "b"}, port=4000)),
        expected=common_pb2.STAGE_PAUSED,
    )
    value = etcd_keys.encode(record)
    assert b'"expected": "STAGE_PAUSED"' in value
    assert "ä".encode() in value
    assert etcd_keys.decode(pb.SubTaskRecord, value, "k") == record


@pytest.mark.parametrize("value", [b"", b"{", b"\xff", b'{"config": {"of_a_newer_version": 1}}'])
def test_record_that_cannot_be_read_whole_is_refused(value: bytes) -> None:
    with pytest.raises(ShardmergeError) as caught:
        etcd_keys.decode(pb.SubTaskRecord, value, "/k")
    assert caught.value.spec is errors.master.BAD_RECORD
    assert "/k" in str(caught.value)
