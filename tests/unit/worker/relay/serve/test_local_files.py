"""The relay log's files as a lane reads them, compared with the stream of the same bytes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.relay.log.files import relay_path
from shardmerge.worker.relay.log.relay_log import RelayLog
from shardmerge.worker.relay.model import BlockPlace, ReachedUntil
from shardmerge.worker.relay.serve.local_files import LocalLog
from shardmerge.worker.relay.serve.subscription import subscribe
from tests.support.made_source import MadeSource
from tests.unit.worker.relay.rig import START, Rig


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """A relay log of several segments."""
    source = MadeSource()
    for size in range(40):
        source.transaction(size, 2 * size)
    made = Rig(tmp_path / "relay", source)
    made.fetch()
    assert made.log.head().offset.segment > 3
    return made


def _places(rig: Rig) -> list[BlockPlace]:
    log = rig.log
    items = list(subscribe(log, log.first().offset, log.head().offset, None, StopSignal(), by_reference=True))
    assert isinstance(items[-1], ReachedUntil)
    places = [item for item in items if isinstance(item, BlockPlace)]
    assert len(places) == len(items) - 1
    return places


def _log(rig: Rig) -> LocalLog:
    return LocalLog(rig.directory, rig.log.require().relay_id, "s")


def test_the_bytes_are_those_that_the_stream_serves(rig: Rig) -> None:
    served = rig.served()
    local = _log(rig)
    assert local.is_available()
    for place, block in zip(_places(rig), served, strict=True):
        assert local.read(place.start, place.end) == block.events
        for name in ("start", "end", "ends_group", "group_start", "first_event", "end_position", "commit_time"):
            assert getattr(place, name) == getattr(block, name)
    local.close()


def test_files_that_are_elsewhere_are_not_at_hand(rig: Rig, tmp_path: Path) -> None:
    relay_id = rig.log.require().relay_id
    assert not LocalLog(tmp_path / "elsewhere", relay_id, "s").is_available()
    assert not LocalLog(rig.directory, relay_id + "0", "s").is_available()
    (rig.directory / "relay.json").write_bytes(b"{")
    assert not LocalLog(rig.directory, relay_id, "s").is_available()


def test_another_log_is_never_taken_for_the_requested_one(rig: Rig, tmp_path: Path) -> None:
    """The worker began a new relay log in the same folder while a lane was reading the old one."""
    local = _log(rig)
    first, *_, last = _places(rig)
    wanted = local.read(first.start, first.end)
    again = RelayLog(rig.directory, "s")
    again.begin(START)
    relay_path(rig.directory, last.start.segment).write_bytes(b"\0" * last.end.byte)
    # What was opened before is the old log's, whatever became of its name.
    assert local.read(first.start, first.end) == wanted
    with pytest.raises(EOFError, match="new relay log"):
        local.read(last.start, last.end)
    # And once more: the file that was refused is not read on.
    with pytest.raises(EOFError, match="new relay log"):
        local.read(last.start, last.end)


def test_a_segment_that_is_shorter_than_was_announced_is_refused(rig: Rig) -> None:
    local = _log(rig)
    last = _places(rig)[-1]
    os.truncate(relay_path(rig.directory, last.end.segment), last.end.byte - 1)
    with pytest.raises(EOFError, match="shorter"):
        local.read(last.start, last.end)


def test_a_segment_that_is_gone_is_refused(rig: Rig) -> None:
    local = _log(rig)
    with pytest.raises(FileNotFoundError):
        local.read(RelayOffset(99, 4), RelayOffset(99, 20))
