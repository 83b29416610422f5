"""What may be removed: never what a checkpoint needs (I7)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto import config_pb2, errors
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.worker.core.mysql.connection import Endpoint
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.relay.fetch.appender import Appender
from shardmerge.worker.relay.fetch.dump_start import FromFile
from shardmerge.worker.relay.log.files import segment_numbers
from shardmerge.worker.relay.log.generation import load
from shardmerge.worker.relay.log.relay_log import RelayLog
from shardmerge.worker.relay.model import BlockData, PurgePolicy
from shardmerge.worker.relay.purge_policy import (
    HeldBecause,
    OldSegment,
    Purged,
    PurgeDecision,
    SegmentRange,
    first_from_file,
    first_to_keep,
    kept_because,
    knows_file,
)
from shardmerge.worker.relay.relay import Relay
from shardmerge.worker.relay.serve.subscription import subscribe
from tests.support.made_source import MadeSource
from tests.support.server_ids import unleased
from tests.unit.worker.relay.rig import Rig

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


def place(number: int, pos: int) -> SourcePosition:
    return SourcePosition(f"mysql-bin.{number:06d}", pos)


def stretches(*ends: tuple[int, int], floors: dict[int, int] | None = None) -> list[SegmentRange]:
    """Segments 1, 2, … that end at these (file, byte); the last one is written to."""
    begins = [(1, 4), *ends]
    return [
        SegmentRange(number, place(*begin), place(*end), (floors or {}).get(number, number))
        for number, (begin, end) in enumerate(zip(begins, ends, strict=False), 1)
    ]


FILES = stretches((1, 500), (2, 4), (3, 100), (3, 900), (5, 50))
"""File 1 in segments 1 and 2, file 2 in 3, which holds some of file 3, as 4 does, which is all of it; 5: the last."""


@pytest.mark.parametrize(
    ("file", "needed", "read", "choice"),
    [
        (1, None, None, PurgeDecision(1, HeldBecause.NONE)),
        (2, None, None, PurgeDecision(3, HeldBecause.NONE)),
        (3, None, None, PurgeDecision(3, HeldBecause.FILE)),
        (4, None, None, PurgeDecision(5, HeldBecause.FILE)),
        (5, None, None, PurgeDecision(5, HeldBecause.FILE)),
        (3, RelayOffset(2, 99), None, PurgeDecision(2, HeldBecause.NEEDED)),
        (3, RelayOffset(1, 4), None, PurgeDecision(1, HeldBecause.NEEDED)),
        (3, RelayOffset(0, 0), None, PurgeDecision(1, HeldBecause.UNKNOWN)),
        (2, RelayOffset(3, 4), None, PurgeDecision(3, HeldBecause.NONE)),
        (5, RelayOffset(4, 4), 2, PurgeDecision(2, HeldBecause.READ)),
        (5, RelayOffset(2, 4), 4, PurgeDecision(2, HeldBecause.NEEDED)),
        (5, None, 5, PurgeDecision(5, HeldBecause.FILE)),
    ],
)
def test_choice_before_a_file(file: int, needed: RelayOffset | None, read: int | None, choice: PurgeDecision) -> None:
    assert first_from_file(FILES, f"mysql-bin.{file:06d}", 1, needed, read) == choice


def test_the_segment_that_is_written_to_stays_also_when_the_file_has_only_begun() -> None:
    assert first_from_file(stretches((1, 500), (2, 4)), "mysql-bin.000002", 1, None, None) == PurgeDecision(
        2, HeldBecause.WRITTEN
    )
    assert first_from_file([], "mysql-bin.000002", 1, None, None) == PurgeDecision(0, HeldBecause.NONE)


def test_prepared_transactions_that_end_later_stay() -> None:
    held = stretches((1, 500), (2, 4), (3, 100), floors={3: 2})
    assert first_from_file(held, "mysql-bin.000002", 1, None, None) == PurgeDecision(2, HeldBecause.PREPARED)


def test_what_another_server_wrote_before_is_older_than_any_file_of_this_one() -> None:
    other = stretches((8, 500), (9, 4))
    mine = [
        SegmentRange(3, place(1, 4), place(2, 50), floor=3),
        SegmentRange(4, place(2, 50), place(2, 99), 4),
    ]
    closed = [*other[:1], SegmentRange(2, other[1].begin, other[1].end, floor=2), *mine]
    assert first_from_file(closed, "mysql-bin.000001", 3, None, None) == PurgeDecision(3, HeldBecause.NONE)
    assert first_from_file(closed, "mysql-bin.000001", 3, RelayOffset(2, 4), None) == PurgeDecision(
        2, HeldBecause.NEEDED
    )


@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(4, 999)), min_size=1, max_size=8),
    st.integers(1, 6),
    st.none() | st.integers(0, 9),
    st.none() | st.integers(1, 9),
)
def test_before_a_file_nothing_goes_that_is_needed_or_read_or_of_the_file(
    ends: list[tuple[int, int]], file: int, needed: int | None, read: int | None
) -> None:
    held = stretches(*sorted(ends))
    lowest = None if needed is None else RelayOffset(needed, 4)
    choice = first_from_file(held, f"mysql-bin.{file:06d}", 1, lowest, read)
    gone = [stretch for stretch in held if stretch.number < choice.keep]
    assert held[-1] not in gone
    assert all(stretch.end.file_order() <= (file, 4) for stretch in gone)
    assert all(needed is None or stretch.number < needed for stretch in gone)
    assert all(read is None or stretch.number < read for stretch in gone)
    left = held[len(gone)]
    assert (choice.why is HeldBecause.NONE) == (left.begin.file_order() >= (file, 4)), "what is left is explained"


@pytest.mark.parametrize(
    ("file", "known"),
    [
        ("mysql-bin.000003", True),
        ("mysql-bin.000001", True),
        ("mysql-bin.000004", False),
        ("mariadb-bin.000002", False),
        ("mysql-bin", False),
        ("mysql-bin.", False),
        ("mysql-bin.x", False),
        (".000001", False),
        ("", False),
    ],
)
def test_known_files(file: str, *, known: bool) -> None:
    assert knows_file(file, place(3, 77)) == known
    assert not knows_file(file, SourcePosition("", 0, "0-1-5")), "begun by GTID, and nothing was fetched yet"


def test_the_reason_names_the_tasks() -> None:
    phrases = {
        why: kept_because(Purged(0, 0, START, why, RelayOffset(2, 99)), "mysql-bin.000003", ("a", "b"))
        for why in HeldBecause
    }
    assert phrases[HeldBecause.NONE] == ""
    assert phrases[HeldBecause.NEEDED] == "task a, b needs it from relay offset 2:99 on"
    assert phrases[HeldBecause.UNKNOWN].startswith("task a, b has not reported")
    assert "mysql-bin.000003" in phrases[HeldBecause.FILE]
    assert all(text for why, text in phrases.items() if why is not HeldBecause.NONE)


def a_relay(directory: Path) -> tuple[Rig, Relay]:
    """Files 1 to 3 of a source in segments of 1500 bytes, each begun within a file; not connected."""
    source = MadeSource()
    for _ in range(2):
        for _ in range(11):
            source.transaction(300)
        source.rotate()
    source.transaction(300)
    rig = Rig(directory, source)
    rig.fetch()
    rig.appender.close()
    nowhere = Endpoint("127.0.0.1", 1, "u")
    return rig, Relay(directory, "s", nowhere, "mariadb", unleased(1), PurgePolicy())


def test_a_relay_loses_what_lies_before_a_file_but_for_what_is_needed(tmp_path: Path) -> None:
    _, relay = a_relay(tmp_path)
    before = relay.status().bytes_on_disk
    numbers = segment_numbers(tmp_path)
    asked = relay.purge_before("mysql-bin.000002")
    assert (asked.segments, asked.why) == (0, HeldBecause.NEEDED), "the needs of tasks are unknown"
    relay.set_needed(lambda: RelayOffset(numbers[1], 99))
    held = relay.purge_before("mysql-bin.000002", relay.relay_id)
    assert (held.segments, held.why, held.needed) == (1, HeldBecause.NEEDED, RelayOffset(numbers[1], 99))
    assert relay.first().offset.segment == numbers[1]
    assert before - relay.status().bytes_on_disk == held.size
    relay.set_needed(lambda: None)
    done = relay.purge_before("mysql-bin.000002")
    assert done.segments > 0
    assert done.begin == relay.first().position
    assert done.begin.file_order() == (2, 4), "a file of the source begins with a segment"
    assert done.why is HeldBecause.NONE
    again = relay.purge_before("mysql-bin.000001")
    assert (again.segments, again.size, again.why) == (0, 0, HeldBecause.NONE), "gone already"


def test_until_the_next_server_has_sent_something_files_are_those_of_the_one_before(tmp_path: Path) -> None:
    rig, _ = a_relay(tmp_path)
    rig.log.switched("b", START, rig.log.head().position.gtid_set)
    relay = Relay(tmp_path, "s", Endpoint("127.0.0.1", 1, "u"), "mariadb", unleased(1), PurgePolicy())
    relay.set_needed(lambda: None)
    done = relay.purge_before("mysql-bin.000002")
    assert done.begin.file_order() == (2, 4)
    assert done.why is HeldBecause.NONE


def test_what_is_being_read_stays(tmp_path: Path) -> None:
    _, relay = a_relay(tmp_path)
    relay.set_needed(lambda: None)
    reading = relay.subscribe(relay.first().offset, None, None, StopSignal())
    assert isinstance(next(reading), BlockData)
    asked = relay.purge_before("mysql-bin.000002")
    assert (asked.segments, asked.why) == (0, HeldBecause.READ)
    reading.close()
    assert relay.purge_before("mysql-bin.000002").segments > 0


@pytest.mark.parametrize(
    ("file", "relay_id", "spec", "says"),
    [
        ("mysql-bin.000004", "", errors.relay.RELAY_FILE_UNKNOWN, "from (mysql-bin.000001, 4) to (mysql-bin.000003, "),
        ("other-bin.000001", "", errors.relay.RELAY_FILE_UNKNOWN, "other-bin.000001"),
        ("mysql-bin.000002", "another", errors.relay.RELAY_SUB_DIR_UNKNOWN, "another"),
    ],
)
def test_another_file_or_relay_log_is_refused(
    tmp_path: Path, file: str, relay_id: str, spec: ErrorSpec, says: str
) -> None:
    _, relay = a_relay(tmp_path)
    relay.set_needed(lambda: None)
    with pytest.raises(ShardmergeError) as caught:
        relay.purge_before(file, relay_id)
    assert caught.value.spec is spec
    assert says in caught.value.message
    assert relay.first().offset.segment == segment_numbers(tmp_path)[0]


def test_a_relay_that_has_not_begun_raises_that_error(tmp_path: Path) -> None:
    relay = Relay(tmp_path, "s", Endpoint("127.0.0.1", 1, "u"), "mariadb", unleased(1), PurgePolicy())
    with pytest.raises(ShardmergeError) as caught:
        relay.purge_before("mysql-bin.000001")
    assert caught.value.spec is errors.relay.RELAY_NOT_BEGUN
