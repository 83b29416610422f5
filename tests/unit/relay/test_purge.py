"""What may be removed: never what a checkpoint needs (I7)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proto import config_pb2
from tests.support.made_source import MadeSource
from worker.position import RelayOffset, SourcePosition
from worker.relay.appender import Appender
from worker.relay.files import segment_numbers
from worker.relay.generation import load
from worker.relay.log import RelayLog
from worker.relay.model import BlockData, PurgePolicy
from worker.relay.purge import OldSegment, first_to_keep
from worker.relay.start import FromFile
from worker.relay.subscription import subscribe
from worker.unit import StopSignal

START = SourcePosition("mysql-bin.000001", 4)
GIB = 1 << 30
HOUR = 3600.0


def old(*ages: float) -> list[OldSegment]:
    return [OldSegment(number, GIB, age * HOUR) for number, age in enumerate(ages, 1)]


@pytest.mark.parametrize(
    ("needed", "expires", "free", "keep"),
    [
        (None, 0, 100, None),  # neither old nor short of space
        (None, 24, 100, 3),  # 1 and 2 are older than a day
        (RelayOffset(2, 4), 24, 100, 2),
        (RelayOffset(1, 999), 24, 100, None),
        (RelayOffset(9, 4), 24, 100, 3),
        (None, 0, 13, 3),  # two of one GiB make 15
        (None, 0, 0, 5),
        (RelayOffset(3, 4), 0, 0, 3),
    ],
)
def test_choice(needed: RelayOffset | None, expires: float, free: int, keep: int | None) -> None:
    policy = PurgePolicy(expires_hours=expires, remain_space_gib=15)
    assert first_to_keep(old(50, 30, 10, 1), needed, policy, free * GIB) == keep


@given(
    st.lists(st.floats(0, 100), max_size=8),
    st.integers(1, 9),
    st.integers(4, 1000),
    st.floats(0, 100),
    st.integers(0, 30),
)
def test_what_is_needed_stays(ages: list[float], segment: int, byte: int, expires: float, free: int) -> None:
    policy = PurgePolicy(expires_hours=expires, remain_space_gib=15)
    keep = first_to_keep(old(*ages), RelayOffset(segment, byte), policy, free * GIB)
    assert keep is None or keep <= segment


def test_policy_from_the_configuration() -> None:
    message = config_pb2.PurgeConfig(interval_seconds=60, expires_hours=5, remain_space_gib=1)
    assert PurgePolicy.from_proto(message) == PurgePolicy(60, 5, 1)
    assert PurgePolicy.from_proto(config_pb2.PurgeConfig()).interval_seconds == 3600


def test_removing_keeps_readers_and_the_last_segment_and_survives_a_restart(tmp_path: Path) -> None:
    source = MadeSource()
    log = RelayLog(tmp_path, "s", segment_bytes=600)
    log.begin(START)
    appender = Appender(log)
    for _ in range(10):
        source.transaction(300)
    appender.connect(FromFile(START, seed=False), "")
    for made in source.dump(START):
        appender.feed(memoryview(made))
    appender.flush()
    numbers = segment_numbers(tmp_path)
    assert len(numbers) > 4
    reading = subscribe(log, log.first().offset, None, None, StopSignal())
    first = next(reading)
    assert isinstance(first, BlockData)
    assert log.drop_before(99) == []
    while isinstance(item := next(reading), BlockData) and item.start.segment < numbers[2]:
        pass
    assert log.drop_before(99) == numbers[:2]
    reading.close()
    assert log.drop_before(numbers[3]) == numbers[2:3]
    position = log.first().position
    generation = load(tmp_path, "s")
    assert generation is not None
    assert (generation.first, generation.begin) == (numbers[3], position)
    assert segment_numbers(tmp_path) == numbers[3:]
    appender.close()
    again = RelayLog(tmp_path, "s")
    assert again.first() == log.first()
    assert again.head() == log.head()
    assert again.drop_before(99) == numbers[3:-1]
