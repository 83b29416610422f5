"""Whatever is sent, cut off and torn: what is served are the source's groups, each once, in order (I9)."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.events import EventType
from shardmerge.worker.binlog.gtid_events import parse_gtid
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.relay.fetch import appender
from shardmerge.worker.relay.log import files
from shardmerge.worker.relay.log.binlog_state import BinlogState
from shardmerge.worker.relay.log.files import index_path, relay_path, segment_numbers, statements_path
from shardmerge.worker.relay.log.index_records import EntryKind
from shardmerge.worker.relay.log.relay_log import RelayLog
from shardmerge.worker.relay.log.segment import read_sealed
from shardmerge.worker.relay.model import AtHead, AtStatement, BlockData, ReachedUntil, Statement, SubscriptionItem
from shardmerge.worker.relay.serve.locate import GroupEnds, end_at, locate
from shardmerge.worker.relay.serve.subscription import subscribe
from tests.support.binlog import split
from tests.support.examples import examples
from tests.support.made_source import MadeSource
from tests.unit.worker.relay.rig import SPACING, START, Rig, bytes_of


class Grow(NamedTuple):
    what: str
    sizes: list[int]


class Fetch(NamedTuple):
    events: int
    at_once: int


@dataclass(frozen=True)
class Disconnect:
    pass


class Tear(NamedTuple):
    """Kill; cut file ``which`` of the last segment at ``share`` of its size, or append garbage."""

    which: int
    share: float
    garbage: bytes


STEPS = st.lists(
    st.one_of(
        st.builds(
            Grow,
            st.sampled_from(["rows", "rows", "rows", "ddl", "rotate", "crash", "crash inside", "other server"]),
            st.lists(st.integers(0, 400), min_size=1, max_size=6),
        ),
        st.builds(Fetch, st.integers(1, 30), st.integers(1, 9)),
        st.builds(Disconnect),
        st.builds(Tear, st.integers(0, 2), st.floats(0, 1), st.binary(max_size=40)),
    ),
    max_size=40,
)


def grow(source: MadeSource, step: Grow) -> None:
    match step.what:
        case "rows":
            source.transaction(*step.sizes)
        case "ddl":
            source.statement(b"ALTER TABLE t FORCE" + bytes(step.sizes[0] % 50))
        case "rotate":
            source.rotate()
        case "other server":
            source.writer = step.sizes[0] % 3 + 1
            source.transaction(*step.sizes)
        case _:
            source.crash(inside_group=step.what == "crash inside")


def state_of(served: bytes) -> str:
    """The last number of each server."""
    state = BinlogState()
    for made in split(served):
        if made[4] == EventType.MARIADB_GTID:
            state.add(parse_gtid(made, checksum=False).text)
    return str(state)


def tear(rig: Rig, step: Tear) -> None:
    rig.appender.close()
    numbers = segment_numbers(rig.directory)
    if numbers:
        path = (relay_path, index_path, statements_path)[step.which](rig.directory, numbers[-1])
        # The events of a closed segment are on disk before its index records that.
        closed = step.which == 0 and read_sealed(rig.directory, numbers[-1]) is not None
        if path.exists() and not closed:
            os.truncate(path, int(path.stat().st_size * step.share))
            with path.open("ab") as file:
                file.write(step.garbage)


def test_from_whom_it_was_read_outlives_the_segments(rig: Rig) -> None:
    """MariaDB's GTID sets name one server of a domain; all of them are known at every end, whatever was purged."""
    source = rig.source
    for writer in (7, 1, 8, 1):
        source.writer = writer
        for _ in range(6):
            source.transaction(200, 200)
    rig.fetch()
    assert len(rig.log.segments()) > 4
    known = "0-1-24,0-7-6,0-8-18"
    assert rig.log.binlog_state() == known
    rig.log.drop_before(rig.log.segments()[-1].number)
    rig.reopen()
    assert len(rig.log.segments()) == 1 and rig.log.binlog_state() == known
    # Closed, with nothing after it yet: as when the next server is about to send.
    rig.fetch_by_gtid(source, "b")
    source.writer = 9
    source.transaction(10)
    rig.disconnect()
    rig.fetch()
    rig.reopen()
    assert rig.log.binlog_state() == f"{known},0-9-25"
    rig.log.begin(START)
    assert rig.log.binlog_state() == ""


@settings(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.booleans(), st.booleans(), STEPS)
def test_what_is_served_is_what_was_committed_once_and_in_order(
    mariadb: bool, checksum: bool, steps: list[Grow | Fetch | Disconnect | Tear]
) -> None:
    source = MadeSource(mariadb=mariadb, checksum=checksum)
    with tempfile.TemporaryDirectory() as folder:
        rig = Rig(Path(folder), source)
        seen: dict[RelayOffset, SourcePosition] = {}
        for step in steps:
            match step:
                case Grow():
                    grow(source, step)
                    rig.disconnect()
                case Fetch():
                    rig.fetch(step.events, step.at_once)
                    head = rig.log.head()
                    seen[head.offset] = head.position
                case Disconnect():
                    rig.disconnect()
                case Tear():
                    if not checksum:  # garbage cannot be distinguished from events without checksums
                        step = step._replace(garbage=b"")
                    tear(rig, step)
                    rig.reopen()
                    assert source.committed().startswith(bytes_of(rig.served()))
            assert rig.log.binlog_state() == state_of(bytes_of(rig.served()))
        rig.disconnect()
        rig.fetch()
        assert bytes_of(rig.served()) == source.committed()
        assert rig.log.binlog_state() == state_of(source.committed())
        # A relay offset that was published once means the same place for ever, whatever was torn since.
        relay_id = rig.log.require().relay_id
        for offset, position in seen.items():
            if offset.byte > 4:
                found = end_at(rig.log, relay_id, rig.log.segment(relay_id, offset.segment), offset.byte)
                assert found.position.file_order() <= position.file_order()
                assert bytes_of(rig.served(until=offset)) + bytes_of(rig.served(start=offset)) == source.committed()
        rig.appender.close()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path, MadeSource())
    yield made
    made.appender.close()


def test_a_group_larger_than_a_block_comes_in_pieces(rig: Rig) -> None:
    rig.source.transaction(10)
    rig.source.transaction(*[100] * 30)
    rig.source.transaction(10)
    rig.fetch()
    blocks = rig.served()
    assert bytes_of(blocks) == rig.source.committed()
    pieces = [block for block in blocks if not block.ends_group]
    assert len(pieces) > 5
    assert max(len(block.events) for block in blocks) < 2 * SPACING + 200
    # A piece has the position of the last group end before it, the last one that of its own end.
    assert len({str(block.end_position) for block in pieces}) == 1


def test_a_large_group_that_went_back_to_a_savepoint_comes_whole(rig: Rig) -> None:
    """A reader that had applied a piece of it would have to undo that."""
    rig.source.gtid()
    rig.source.query(b"SAVEPOINT s")
    for _ in range(30):
        rig.source.add(EventType.WRITE_ROWS_V1, bytes(100))
    rig.source.query(b"ROLLBACK TO s")
    rig.source.add(EventType.XID, bytes(8))
    rig.fetch()
    blocks = rig.served()
    assert all(block.ends_group for block in blocks)
    assert max(len(block.events) for block in blocks) > 30 * 100
    assert bytes_of(blocks) == rig.source.committed()


def test_every_group_end_can_be_a_start_and_an_end(rig: Rig) -> None:
    for size in (10, 200, 350, 20, 20, 900, 5):
        rig.source.transaction(size, size)
    rig.source.rotate()
    rig.source.transaction(7)
    rig.fetch()
    whole = bytes_of(rig.served())
    relay_id = rig.log.require().relay_id
    ends: list[RelayOffset] = []
    for segment in rig.log.segments():
        for byte in range(4, rig.log.end_byte(segment) + 1):
            try:
                ends.append(end_at(rig.log, relay_id, segment, byte).offset)
            except ShardmergeError as error:
                assert error.spec is errors.relay.OFFSET_NOT_GROUP_END
                with pytest.raises(ShardmergeError):
                    rig.served(start=RelayOffset(segment.number, byte))
    assert len(ends) >= 9
    for end in ends:
        assert bytes_of(rig.served(until=end)) + bytes_of(rig.served(start=end)) == whole


def test_an_unfinished_group_is_never_served(rig: Rig) -> None:
    rig.source.transaction(10)
    rig.fetch()
    before = rig.log.head()
    rig.disconnect()
    rig.source.gtid()
    rig.source.add(EventType.WRITE_ROWS_V1, bytes(1000))
    rig.fetch()
    assert rig.log.head() == before
    path = relay_path(rig.directory, before.offset.segment)
    assert path.stat().st_size > before.offset.byte
    assert rig.connect() == before.position
    assert path.stat().st_size == before.offset.byte
    rig.disconnect()
    rig.fetch()
    assert path.stat().st_size > before.offset.byte
    rig.reopen()
    assert rig.log.head().offset == before.offset
    assert path.stat().st_size == before.offset.byte


def test_positions_times_and_gtids_at_group_ends(rig: Rig) -> None:
    rig.source.transaction(10)
    rig.source.transaction(10)
    rig.fetch()
    head = rig.log.head()
    assert (head.position.file, head.position.pos) == (rig.source.position.file, rig.source.position.pos)
    assert head.position.gtid_set == "0-1-2"
    assert head.commit_time == 1_700_000_002
    block = rig.served()[-1]
    assert (block.end_position, block.commit_time) == (head.position, head.commit_time)


def test_statements_are_announced_before_their_group(rig: Rig) -> None:
    rig.source.transaction(10)
    rig.source.statement(b"ALTER TABLE a FORCE")
    rig.source.statement(b"ALTER TABLE b FORCE")
    rig.source.gtid()
    rig.source.query(b"SAVEPOINT s")
    rig.source.query(b"INSERT INTO b VALUES (1)")
    rig.source.query(b"INSERT INTO b VALUES (2)", schema=b"", sql_mode=4)
    rig.source.query(b"COMMIT")
    rig.source.transaction(10)
    rig.fetch()
    asked: list[str] = []

    def in_scope(statement: Statement) -> bool:
        asked.append(statement.text)
        return " b " in statement.text

    items = list(subscribe(rig.log, rig.log.first().offset, rig.log.head().offset, in_scope, StopSignal()))
    items = [item for at, item in enumerate(items) if not _goes_on(item, items[at + 1 : at + 2])]
    kinds = [type(item) for item in items]
    assert kinds == [BlockData, AtStatement, BlockData, AtStatement, AtStatement, BlockData, ReachedUntil]
    assert [len(text) for text in asked] == [19, 19, 24, 24]
    alter, first, second = (item.statement for item in items if isinstance(item, AtStatement))
    assert isinstance(items[0], BlockData) and isinstance(items[2], BlockData)
    assert alter.group_start == items[0].end
    assert alter.position == items[0].end_position
    assert first.group_start == second.group_start == alter.group_end == items[2].end
    assert first.offset < second.offset < first.group_end == second.group_end
    assert (second.schema, second.sql_mode, first.schema, first.sql_mode) == ("", 4, "d", None)


def _goes_on(item: SubscriptionItem, following: list[SubscriptionItem]) -> bool:
    return isinstance(item, BlockData) and len(following) > 0 and isinstance(following[0], BlockData)


def test_a_damaged_index_of_a_closed_segment_is_made_anew(rig: Rig) -> None:
    for _ in range(20):
        rig.source.transaction(50, 50)
        rig.source.statement(b"ALTER TABLE t FORCE")
    rig.fetch()
    numbers = segment_numbers(rig.directory)
    assert len(numbers) > 3
    statements = [segment.index.statements for segment in rig.log.segments() if segment.index]
    index = index_path(rig.directory, numbers[1])
    os.truncate(index, index.stat().st_size - 9)
    middle = index_path(rig.directory, numbers[2])
    data = bytearray(middle.read_bytes())
    data[len(data) // 2] ^= 1
    middle.write_bytes(data)
    texts = statements_path(rig.directory, numbers[0])
    texts.write_bytes(texts.read_bytes()[:-1] + b"?")
    rig.reopen()
    assert [segment.number for segment in rig.log.segments()] == numbers
    assert bytes_of(rig.served()) == rig.source.committed()
    again = [rig.log.index_of(segment).statements for segment in rig.log.segments()]
    assert again == statements


def test_a_damaged_closed_segment_is_an_error_not_a_gap(rig: Rig) -> None:
    for _ in range(20):
        rig.source.transaction(50, 50)
    rig.fetch()
    numbers = segment_numbers(rig.directory)
    path = relay_path(rig.directory, numbers[1])
    os.truncate(path, path.stat().st_size - 30)
    with pytest.raises(ShardmergeError) as caught:
        rig.served()
    assert caught.value.spec is errors.relay.RELAY_DAMAGED
    rig.reopen()  # cuts there and fetches the rest again
    assert rig.log.head().offset.segment == numbers[1]
    rig.fetch()
    assert bytes_of(rig.served()) == rig.source.committed()


def test_groups_missing_at_the_end_of_a_closed_segment_are_noticed(rig: Rig) -> None:
    """Torn exactly between two groups, with its index gone: only the next segment's begin shows it."""
    for _ in range(20):
        rig.source.transaction(50, 50)
    rig.fetch()
    second = rig.log.segments()[1]
    ends = [entry.byte for entry in rig.log.index_of(second).entries if entry.kind is EntryKind.GROUP_END]
    os.truncate(relay_path(rig.directory, second.number), ends[-1])
    os.truncate(index_path(rig.directory, second.number), index_path(rig.directory, second.number).stat().st_size - 1)
    rig.reopen()
    assert rig.log.head().offset == RelayOffset(second.number, ends[-1])
    rig.fetch()
    assert bytes_of(rig.served()) == rig.source.committed()


def test_a_bad_checksum_stores_nothing_and_is_reported(rig: Rig) -> None:
    rig.source.transaction(10)
    rig.fetch()
    rig.source.transaction(10)
    bad = bytearray(rig.source.files[-1].events[-2])
    bad[25] ^= 1
    with pytest.raises(ShardmergeError) as caught:
        rig.appender.feed(memoryview(bytes(bad)))
    assert caught.value.spec is errors.relay.EVENT_CHECKSUM
    assert caught.value.spec.retryable
    rig.disconnect()
    rig.fetch()
    assert bytes_of(rig.served()) == rig.source.committed()


def test_an_event_sent_twice_stops(rig: Rig) -> None:
    rig.source.transaction(10)
    rig.fetch()
    with pytest.raises(ShardmergeError) as caught:
        rig.appender.feed(memoryview(rig.source.files[-1].events[1]))
    assert caught.value.spec is errors.relay.EVENT_OVERLAP


@pytest.mark.parametrize("code", [EventType.XID, EventType.WRITE_ROWS_V2, EventType.TRANSACTION_PAYLOAD])
def test_rows_outside_of_a_group_stop(rig: Rig, code: int) -> None:
    rig.source.add(code, bytes(8))
    with pytest.raises(ShardmergeError) as caught:
        rig.fetch()
    assert caught.value.spec is errors.relay.GROUP_BROKEN


def test_a_group_without_an_end_before_the_next_stops(rig: Rig) -> None:
    rig.source.gtid()
    rig.source.transaction(10)
    with pytest.raises(ShardmergeError) as caught:
        rig.fetch()
    assert caught.value.spec is errors.relay.GROUP_BROKEN


def test_a_heartbeat_moves_the_position_over_what_is_not_sent(rig: Rig) -> None:
    rig.source.transaction(10)
    rig.fetch()
    before = rig.log.head()
    skipped = rig.source.add(EventType.START_ENCRYPTION, bytes(20))
    rig.appender.feed(memoryview(rig.source.heartbeat()))
    rig.appender.flush()
    assert rig.log.head().offset == before.offset
    assert rig.log.head().position.pos == before.position.pos + len(skipped)
    nothing = StopSignal()
    assert locate(rig.log, rig.source.position, 1, nothing, lambda: None) == before.offset
    rig.source.transaction(10)
    for made in rig.source.files[-1].events[-3:]:
        rig.appender.feed(memoryview(made))
    rig.appender.flush()
    # In between, the skipped event's place still belongs to the end of the group before it.
    for pos in (before.position.pos, before.position.pos + 5, before.position.pos + len(skipped)):
        place = SourcePosition(before.position.file, pos)
        assert locate(rig.log, place, 1, nothing, lambda: None) == before.offset


def test_a_file_beyond_four_gib_is_counted_and_read_again_from_its_start(rig: Rig) -> None:
    file = rig.source.files[-1]
    rig.source.transaction(10)
    # Files do not get that large by themselves: the source skips events until just below 4 GiB.
    file.ends[-1] = (1 << 32) - 1000
    rig.fetch()
    rig.appender.feed(memoryview(rig.source.heartbeat()))
    rig.appender.flush()
    assert rig.log.head().position.pos == (1 << 32) - 1000
    rig.disconnect()
    for _ in range(6):
        rig.source.transaction(300)
    rig.fetch()
    assert rig.log.head().position.pos == file.end > 1 << 32
    # The dump command cannot name that byte.
    assert rig.connect() == SourcePosition(file.name, 4, rig.log.head().position.gtid_set)
    rig.source.transaction(5)
    for made in rig.source.dump(SourcePosition(file.name, 4)):
        rig.appender.feed(memoryview(made))
    rig.appender.flush()
    assert bytes_of(rig.served()) == rig.source.committed()


@pytest.mark.parametrize("at_once", [False, True], ids=["one by one", "many"])
def test_locate_finds_every_group_end_and_refuses_the_inside_of_a_group(rig: Rig, *, at_once: bool) -> None:
    many = GroupEnds() if at_once else None
    ends = [rig.source.position]
    for size in (10, 400, 10, 10):
        rig.source.transaction(size)
        ends.append(rig.source.position)
    rig.source.rotate()
    for size in (10, 900):
        rig.source.transaction(size)
        ends.append(rig.source.position)
    rig.fetch()
    # What has been walked over grows: the last but one is not the head itself.
    for _ in range(6):
        rig.source.transaction(10)
        ends.append(rig.source.position)
        for made in rig.source.files[-1].events[-3:]:
            rig.appender.feed(memoryview(made))
        rig.appender.flush()
        grown = locate(rig.log, ends[-2], 1, StopSignal(), lambda: None, ends=many)
        assert grown == locate(rig.log, ends[-2], 1, StopSignal(), lambda: None)
    relay_id = rig.log.require().relay_id
    for end in ends:
        offset = locate(rig.log, end, 1, StopSignal(), lambda: None, ends=many)
        found = end_at(rig.log, relay_id, rig.log.segment(relay_id, offset.segment), offset.byte)
        assert (found.position.file, found.position.pos) == (end.file, end.pos)
        with pytest.raises(ShardmergeError) as caught:
            locate(rig.log, SourcePosition(end.file, end.pos - 3), 1, StopSignal(), lambda: None, ends=many)
        assert caught.value.spec is errors.relay.POSITION_INSIDE_GROUP
    # The end of a closed file is the start of the next one.
    closed = rig.source.files[0]
    places = (SourcePosition(closed.name, closed.end), SourcePosition("mysql-bin.000002", 4))
    one, other = (locate(rig.log, place, 1, StopSignal(), lambda: None, ends=many) for place in places)
    assert bytes_of(rig.served(start=one)) == bytes_of(rig.served(start=other))
    assert one.segment + 1 == other.segment


def test_locate_before_beyond_and_stopped(rig: Rig) -> None:
    rig.log.begin(SourcePosition("mysql-bin.000001", rig.source.position.pos))
    rig.source.transaction(10)
    rig.fetch()
    nothing, early = StopSignal(), SourcePosition("mysql-bin.000001", 4)
    with pytest.raises(ShardmergeError) as caught:
        locate(rig.log, early, 1, nothing, lambda: None)
    assert caught.value.spec is errors.relay.POSITION_BEFORE_RELAY
    assert locate(rig.log, early, 1, nothing, lambda: None, first_if_before=True) == rig.log.first().offset
    late = SourcePosition("mysql-bin.000009", 4)
    with pytest.raises(ShardmergeError) as caught:
        locate(rig.log, late, 0.01, nothing, lambda: None)
    assert caught.value.spec is errors.relay.LOCATE_TIMEOUT
    why = errors.relay.DUMP_ENDED(source="s", position="x", reason="y")
    with pytest.raises(ShardmergeError) as caught:
        locate(rig.log, late, 60, nothing, lambda: why)
    assert caught.value is why
    nothing.set()
    with pytest.raises(ShardmergeError) as caught:
        locate(rig.log, late, 60, nothing, lambda: None)
    assert caught.value.spec is errors.relay.WAIT_INTERRUPTED


def test_a_new_generation_ends_subscriptions_and_shares_no_offset(rig: Rig) -> None:
    rig.source.transaction(10)
    rig.fetch()
    old = rig.log.require()
    last = rig.log.head().offset
    reading = subscribe(rig.log, rig.log.first().offset, None, None, StopSignal())
    assert isinstance(next(reading), BlockData)
    assert isinstance(next(reading), AtHead)
    rig.log.begin(START)
    with pytest.raises(ShardmergeError) as caught:
        next(reading)
    assert caught.value.spec is errors.relay.RELAY_RESTARTED
    assert caught.value.spec.retryable
    assert rig.log.require().relay_id != old.relay_id
    assert rig.log.first().offset > last
    with pytest.raises(ShardmergeError) as caught:
        rig.served(start=last)
    assert caught.value.spec is errors.relay.OFFSET_PURGED
    rig.disconnect()
    rig.fetch()
    assert bytes_of(rig.served()) == rig.source.committed()


def test_a_start_that_was_lost_with_the_tail_is_waited_for(rig: Rig) -> None:
    rig.source.transaction(10)
    rig.source.transaction(10)
    rig.fetch()
    checkpoint = rig.log.head().offset
    os.truncate(relay_path(rig.directory, checkpoint.segment), checkpoint.byte - 1)
    rig.reopen()
    assert rig.log.head().offset < checkpoint
    reading = subscribe(rig.log, checkpoint, None, None, StopSignal())
    assert isinstance(next(reading), AtHead)
    rig.source.transaction(77)
    rig.fetch()
    block = next(item for item in reading if isinstance(item, BlockData))
    assert block.start == checkpoint
    assert len(list(split(block.events))) == 3


def test_a_description_of_the_log_that_is_damaged_is_an_error(rig: Rig) -> None:
    (rig.directory / "relay.json").write_text("{")
    with pytest.raises(ShardmergeError) as caught:
        RelayLog(rig.directory, "s")
    assert caught.value.spec is errors.relay.RELAY_DAMAGED


def test_stop_ends_a_subscription(rig: Rig) -> None:
    rig.source.transaction(10)
    rig.fetch()
    stop = StopSignal()
    reading = subscribe(rig.log, rig.log.first().offset, None, None, stop)
    assert isinstance(next(reading), BlockData)
    stop.set()
    assert list(reading) == []


@pytest.mark.parametrize("reopen", [False, True])
def test_a_write_that_fails_anywhere_loses_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reopen: bool
) -> None:
    """Each write and fsync of a run with several segments fails once, after half of its bytes."""
    source = MadeSource()
    for size in (10, 600, 600, 20):
        source.transaction(size, size)
        source.statement(b"ALTER TABLE t FORCE")
    source.rotate()
    source.transaction(700, 700)
    whole = source.committed()
    write, fsync = files.write_at, os.fsync
    calls = failing = failed = 0
    armed = False

    def count() -> bool:
        nonlocal calls
        calls += 1
        return armed and calls == failing

    def write_or_fail(fd: int, data: bytes, at: int) -> None:
        if count():
            write(fd, data[: len(data) // 2], at)
            raise OSError(errno.ENOSPC, "No space left on device")
        write(fd, data, at)

    def fsync_or_fail(fd: int) -> None:
        if count():
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(fd)

    monkeypatch.setattr(appender, "write_at", write_or_fail)
    monkeypatch.setattr(os, "fsync", fsync_or_fail)
    while failing == failed:
        rig = Rig(tmp_path / str(failing), source)
        calls, failing, armed = 0, failing + 1, True
        try:
            rig.fetch(at_once=2)
        except ShardmergeError as error:
            assert error.spec is errors.relay.DISK_FULL
            failed += 1
            assert whole.startswith(bytes_of(rig.served()))
            if reopen:
                rig.reopen()
        armed = False
        rig.disconnect()
        rig.fetch(at_once=3)
        assert bytes_of(rig.served()) == whole
        rig.reopen()
        assert bytes_of(rig.served()) == whole
        rig.appender.close()
    assert failed > 20


def test_it_is_this_users_alone(tmp_path: Path) -> None:
    """Also what an earlier version made for others."""
    directory = tmp_path / "relay-dir" / "src-1"
    directory.mkdir(parents=True, mode=0o755)
    (directory / "left.over").touch(mode=0o644)
    source = MadeSource()
    source.transaction(10, 20)
    Rig(directory, source).fetch()
    assert directory.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in directory.iterdir()} == {0o600}
    assert len([*directory.iterdir()]) > 3
