"""A relay log that begins by a GTID set, or continues by one at another server: nothing lost, nothing twice."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.worker.binlog.events import EventType
from shardmerge.worker.binlog.gtid_events import parse_gtid
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.relay.fetch.dump_start import FromFile, FromGtids
from shardmerge.worker.relay.serve.locate import locate, next_server, reaches_back
from tests.support.binlog import split
from tests.support.made_source import MadeSource
from tests.unit.worker.relay.rig import Rig


@pytest.fixture(params=[True, False], ids=["mariadb", "mysql"])
def rig(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Rig]:
    made = Rig(tmp_path, MadeSource(mariadb=bool(request.param)), "a")
    yield made
    made.appender.close()


def like(source: MadeSource) -> MadeSource:
    return MadeSource(mariadb=source.mariadb)


def write(source: MadeSource, *numbers: int) -> None:
    """Transactions with these numbers; 0: the next file."""
    for number in numbers:
        if number:
            source.sequence = number - 1
            source.transaction(number)
        else:
            source.rotate()


def gtids(rig: Rig, start: RelayOffset | None = None, end: RelayOffset | None = None) -> list[str]:
    """Of the transactions that are served."""
    return [
        parse_gtid(made, checksum=True).text.rpartition(":")[2].rpartition("-")[2]
        for block in rig.served(start, end)
        for made in split(block.events)
        if made[4] in (EventType.GTID, EventType.MARIADB_GTID)
    ]


def numbers(*spans: range) -> list[str]:
    return [str(number) for span in spans for number in span]


def place(rig: Rig, position: SourcePosition, *, inside: bool = False, first_if_before: bool = False) -> RelayOffset:
    return locate(rig.log, position, 0, StopSignal(), lambda: None, first_if_before=first_if_before, inside=inside)


def refused(rig: Rig, position: SourcePosition, *, inside: bool = False, first_if_before: bool = False) -> ErrorSpec:
    with pytest.raises(ShardmergeError) as caught:
        place(rig, position, inside=inside, first_if_before=first_if_before)
    return caught.value.spec


def test_it_continues_at_a_server_with_other_files(rig: Rig) -> None:
    write(rig.source, *range(1, 10), 0, *range(10, 20))
    rig.fetch()
    other = like(rig.source)
    write(other, *range(1, 5), 0, *range(5, 15), 0, *range(15, 20))
    write(other, *range(20, 25))
    before = rig.log.require().relay_id
    rig.fetch_by_gtid(other, "b")
    assert gtids(rig) == numbers(range(1, 25))
    assert rig.log.head().position.server == "b"
    assert rig.log.head().position.file_order() == other.position.file_order()
    # Whoever remembers offsets of the log learns that it is another one, and finds its place by position.
    assert rig.log.require().relay_id != before
    rig.reopen()
    assert gtids(rig) == numbers(range(1, 25))
    assert rig.log.head().position.server == "b"


def test_after_a_disconnect_before_the_next_file_it_continues_by_gtid(rig: Rig) -> None:
    """The other server may have known transactions after unknown ones: by its files they would be fetched twice."""
    write(rig.source, *range(1, 6))
    rig.fetch()
    other = like(rig.source)
    if rig.source.mariadb:
        write(other, *range(1, 8))
    else:
        write(other, 1, 2, 6, 3, 4, 7, 5)
    rig.fetch_by_gtid(other, "b")
    settling = rig.log.require().settling
    assert settling is not None
    assert gtids(rig) == numbers(range(1, 8))
    for number in (8, 9):
        write(other, number)
        rig.disconnect()
        rig.reopen()
        rig.fetch_by_gtid(other, "b")
        assert gtids(rig) == numbers(range(1, number + 1))
        assert rig.log.require().settling == settling
    other.sequence = 9
    write(other, 0, 10)
    rig.disconnect()
    rig.fetch_by_gtid(other, "b")
    assert rig.log.require().settling is None
    write(other, 11)
    rig.disconnect()
    rig.fetch()
    assert gtids(rig) == numbers(range(1, 12))


def test_a_log_that_begins_with_a_set_alone(rig: Rig) -> None:
    write(rig.source, *range(1, 6), 0, *range(6, 10), 0, *range(10, 14))

    def behind(number: int) -> SourcePosition:
        text = f"0-1-{number}" if rig.source.mariadb else str(rig.source.executed).replace(":1-13", f":1-{number}")
        return SourcePosition("", 0, text)

    rig.log.begin(behind(7))
    rig.fetch_by_gtid(rig.source, "a")
    assert gtids(rig) == numbers(range(8, 14))
    assert gtids(rig, place(rig, behind(7))) == numbers(range(8, 14))
    assert gtids(rig, place(rig, behind(11))) == numbers(range(12, 14))
    assert reaches_back(rig.log, behind(7))
    assert reaches_back(rig.log, behind(11))
    assert not reaches_back(rig.log, behind(6))
    assert refused(rig, behind(6)) is errors.relay.POSITION_BEFORE_RELAY
    assert refused(rig, behind(99)) is errors.relay.LOCATE_TIMEOUT


def test_every_place_that_was_given_out_is_found_again(rig: Rig) -> None:
    write(rig.source, *range(1, 10), 0, *range(10, 16))
    rig.fetch()
    other = like(rig.source)
    write(other, *range(1, 13), 0, *range(13, 18), 0, *range(18, 22))
    rig.fetch_by_gtid(other, "b")
    rig.reopen()
    given = {(block.end_position, block.end) for block in rig.served() if block.ends_group}
    assert {position.server for position, _ in given} == {"a", "b"}
    assert len(given) > 5
    for position, offset in given:
        found = place(rig, position)
        assert gtids(rig, found) == gtids(rig, offset)
        if position.gtid_set:
            # In a log that was fetched again from another server, only the set identifies it.
            found = place(rig, SourcePosition("x-bin.000001", 5, position.gtid_set, "c"))
            assert gtids(rig, found) == gtids(rig, offset)
            assert refused(rig, replace(position, server="c"), inside=True) is errors.relay.PIECE_OF_ANOTHER_SERVER


def test_places_of_a_server_mean_its_own_part_of_the_log(rig: Rig) -> None:
    """Both servers have a file and a byte of that name, with something else there."""
    write(rig.source, *range(1, 6))
    rig.fetch()
    at_a = replace(rig.source.position, server="a")
    other = like(rig.source)
    write(other, *range(1, 9))
    floor = other.position
    rig.fetch_by_gtid(other, "b")
    write(other, 9, 10)
    rig.disconnect()
    rig.fetch_by_gtid(other, "b")
    assert gtids(rig, place(rig, at_a)) == numbers(range(6, 11))
    # Of the new server only what is at or behind its end when it was first asked: below it lies what came from the old.
    assert gtids(rig, place(rig, replace(floor, server="b"))) == numbers(range(9, 11))
    assert gtids(rig, place(rig, floor)) == numbers(range(9, 11))
    below = SourcePosition(floor.file, floor.pos - 1, "", "b")
    assert refused(rig, below) is errors.relay.POSITION_ELSEWHERE
    # Of the old server nothing that was not read of it.
    assert refused(rig, SourcePosition("mysql-bin.000009", 4, "", "a")) is errors.relay.POSITION_ELSEWHERE
    assert refused(rig, SourcePosition("mysql-bin.000001", 400, "", "c")) is errors.relay.POSITION_ELSEWHERE


def test_a_place_that_no_order_of_the_new_server_has_is_an_error(tmp_path: Path) -> None:
    rig = Rig(tmp_path, MadeSource(mariadb=False), "a")
    write(rig.source, 1, 2, 4, 3, 5)
    known = str(rig.source.executed).replace("1-5", "1-2")
    rig.log.begin(SourcePosition("", 0, known))
    rig.fetch_by_gtid(rig.source, "a")
    assert gtids(rig, place(rig, SourcePosition("", 0, known.replace("1-2", "1-2:4")))) == ["3", "5"]
    assert refused(rig, SourcePosition("", 0, known.replace("1-2", "1-3"))) is errors.relay.GTID_PLACE_MISSING
    rig.appender.close()


def test_a_place_that_is_waited_for_while_the_first_connection_is_made(rig: Rig) -> None:
    """Whose binlog the log will hold is not known before: by the files of the server before nobody would ever come."""
    write(rig.source, *range(1, 6))
    rig.fetch()
    begin = replace(rig.log.head().position, server="a")
    write(rig.source, 6)
    rig.disconnect()
    rig.fetch()
    wanted = replace(rig.log.head().position, server="a")
    unknown = replace(wanted, gtid_set="")
    other = like(rig.source)
    write(other, *range(1, 9))
    found: list[RelayOffset] = []
    refusals: list[ErrorSpec] = []

    def ask() -> None:
        found.append(locate(rig.log, wanted, 300, StopSignal(), lambda: None))
        refusals.append(refused(rig, unknown))

    rig.log.begin(begin)
    asking = threading.Thread(target=ask)
    asking.start()
    rig.fetch_by_gtid(other, "b")
    asking.join(300)
    assert not asking.is_alive(), "it waits for a file of a server that is not read"
    assert gtids(rig, found[0]) == ["7", "8"]
    assert refusals == [errors.relay.POSITION_ELSEWHERE]


def test_what_is_not_known_to_lie_before_the_log_is_not_its_beginning(rig: Rig) -> None:
    """Its changes would be taken for applied, or be applied twice."""
    write(rig.source, *range(1, 6))
    early = replace(rig.source.position, gtid_set="")
    write(rig.source, *range(6, 10), 0, *range(10, 14))
    text = "0-1-7" if rig.source.mariadb else str(rig.source.executed).replace(":1-13", ":1-7")
    rig.log.begin(SourcePosition("", 0, text))
    # Its files tell places from its end on, when the log was begun: all before may lie on either side of the beginning.
    rig.log.connected("a", rig.source.position, text)
    start = rig.appender.connect(FromGtids(text), "a")
    assert isinstance(start, FromGtids)
    for made in rig.source.dump_by_gtid(start.gtid_set):
        rig.appender.feed(memoryview(made))
    rig.appender.flush()
    first, server = rig.log.first().offset, replace(early, server="a")
    assert refused(rig, server, first_if_before=True) is errors.relay.POSITION_ELSEWHERE
    before = text.replace("0-1-7", "0-1-5").replace(":1-7", ":1-5")
    assert place(rig, replace(server, gtid_set=before), first_if_before=True) == first
    assert place(rig, replace(server, gtid_set=before, server="gone"), first_if_before=True) == first
    if not rig.source.mariadb:
        # It has 9, which comes behind the beginning, and lacks 6 and 7, which lie before it.
        aside = replace(server, gtid_set=f"{before}:9")
        assert refused(rig, aside, first_if_before=True) is errors.relay.GTID_PLACE_MISSING


def test_a_known_gtid_that_comes_again_is_refused(tmp_path: Path) -> None:
    rig = Rig(tmp_path, MadeSource(mariadb=False), "a")
    write(rig.source, 1, 2, 3)
    rig.fetch()
    other = MadeSource(mariadb=False)
    write(other, 1, 2, 3, 4, 5)
    other.sequence = 3
    other.transaction(4)
    with pytest.raises(ShardmergeError) as caught:
        rig.fetch_by_gtid(other, "b")
    assert caught.value.spec is errors.relay.SOURCE_LOG_RESET
    rig.appender.close()


def test_the_gtids_before_a_place_are_found_out_by_reading_its_file(tmp_path: Path) -> None:
    """MySQL has no function for the GTIDs before a position in a file."""
    rig = Rig(tmp_path, MadeSource(mariadb=False), "a")
    write(rig.source, 1, 2, 0, 4, 3)
    begin = rig.source.position
    write(rig.source, 6, 5)
    rig.log.begin(begin)
    start = rig.appender.connect(FromFile(begin, seed=True), "a")
    assert start == FromFile(SourcePosition(begin.file, 4), seed=False)
    for made in rig.source.dump(SourcePosition(begin.file, 4)):
        rig.appender.feed(memoryview(made))
    rig.appender.flush()
    assert gtids(rig) == ["6", "5"]
    assert rig.log.first().position.gtid_set.endswith(":1-4")
    assert rig.log.head().position.gtid_set.endswith(":1-6")
    rig.appender.close()


def test_it_is_known_from_whom_what_follows_came(rig: Rig) -> None:
    write(rig.source, 1, 2, 0, 3)
    rig.fetch()
    begin, end = rig.log.first().offset, rig.log.head().offset
    assert next_server(rig.log, end) == next_server(rig.log, begin) == "a"
    other = like(rig.source)
    write(other, 1, 2, 3, 4)
    rig.fetch_by_gtid(other, "b")
    assert next_server(rig.log, begin) == "a"
    assert next_server(rig.log, end) == "b", "all of the server before is behind it"
    assert next_server(rig.log, rig.log.head().offset) == "b"
    # What the server before had when it was first read is kept with its part of the log.
    rig.log.set_executed("0-1-7")
    rig.log.set_executed("0-1-9")
    rig.reopen()
    assert [part.executed for part in rig.log.require().parts] == ["", "0-1-7"]
