"""Estimates of what a task will need."""

from __future__ import annotations

import pytest

from shardmerge.proto import config_pb2 as config
from shardmerge.proto.config import defaults
from shardmerge.worker.verify.precheck.estimates import (
    BYTES_PER_SECOND,
    ROWS_PER_SECOND,
    Connections,
    Size,
    SubtaskSlots,
    at_source,
    at_target,
    copy_seconds,
    shown_bytes,
    shown_seconds,
    slots_of,
)
from shardmerge.worker.verify.precheck.server_capacity import ConnectionLimits, connection_finding


def _subtask(mode: config.TaskMode, threads: int = 0, lanes: int = 0) -> config.SubTaskConfig:
    return config.SubTaskConfig(
        mode=mode,
        snapshot=config.SnapshotConfig(threads=threads),
        replicate=config.ReplicateConfig(lanes=lanes),
    )


def test_slots_are_those_of_the_units() -> None:
    assert slots_of(_subtask(config.TASK_MODE_ALL)) == SubtaskSlots(defaults.READERS, defaults.LANES)
    everything = slots_of(_subtask(config.TASK_MODE_ALL, 3, 5))
    assert (everything.at_once, everything.least, everything.with_joins) == (5, 5, 10)
    assert slots_of(_subtask(config.TASK_MODE_ALL, 8, 2)).least == 2, "a copy needs one"
    assert slots_of(_subtask(config.TASK_MODE_FULL, 8)).least == 1
    assert slots_of(_subtask(config.TASK_MODE_FULL, 3, 5)) == SubtaskSlots(3, 0)
    assert slots_of(_subtask(config.TASK_MODE_FULL, 3, 5)).with_joins == 3
    assert slots_of(_subtask(config.TASK_MODE_INCREMENTAL, 3, 5)) == SubtaskSlots(0, 5)


def test_connections() -> None:
    subtask = _subtask(config.TASK_MODE_ALL, 8, 2)
    assert at_source(subtask, locks=False).count == 3 + 2 + 8 + 1
    assert at_source(subtask, locks=True).count == 3 + 2 + 16 + 1
    subtask.snapshot.max_replica_lag = 3
    assert at_source(subtask, locks=False).count == 3 + 2 + 8 + 2
    assert at_source(_subtask(config.TASK_MODE_INCREMENTAL, 8, 2), locks=False).count == 5
    assert at_target([subtask]).count == 8 + 3
    assert at_target([subtask, _subtask(config.TASK_MODE_INCREMENTAL, 8, 2)]).count == 11 + 5


@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (ConnectionLimits(20, 0, 10), 0),
        (ConnectionLimits(20, 0, 11), 12027),
        (ConnectionLimits(9, 0, 1), 12026),
        (ConnectionLimits(100, 9, 1), 12026),
        (ConnectionLimits(100, 10, 1), 0),
        (ConnectionLimits(0, 0, 1000), 0),  # TiDB's "no limit"
    ],
)
def test_limits_of_connections(limits: ConnectionLimits, code: int) -> None:
    found = connection_finding("s1", "target", Connections(10, "10 of something"), limits)
    assert (found.code if found is not None else 0) == code


def test_seconds_of_a_copy() -> None:
    free = config.SnapshotConfig()
    assert copy_seconds(Size(0, 0), free) == 0
    assert copy_seconds(Size(10 * ROWS_PER_SECOND, 0), free) == 10
    assert copy_seconds(Size(10 * ROWS_PER_SECOND, 20 * BYTES_PER_SECOND), free) == 20
    assert copy_seconds(Size(1000, 0), config.SnapshotConfig(rows_per_second=10)) == 100
    assert copy_seconds(Size(0, 1000), config.SnapshotConfig(bytes_per_second=10)) == 100


def test_figures_for_people() -> None:
    assert [shown_bytes(count) for count in (0, 1023, 1536, 5 << 20, 3 << 40)] == [
        "0 bytes", "1023 bytes", "1.5 KiB", "5.0 MiB", "3072.0 GiB",
    ]  # fmt: skip
    assert [shown_seconds(seconds) for seconds in (0, 40, 119, 3600, 7200, 86400 * 3)] == [
        "1 s", "40 s", "119 s", "60 minutes", "2 hours", "3 days",
    ]  # fmt: skip
