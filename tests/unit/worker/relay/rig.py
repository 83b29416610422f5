"""A relay log fed from a made source, for tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from shardmerge.worker.binlog.events import EventType
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.relay.fetch.appender import Appender
from shardmerge.worker.relay.fetch.dump_start import FromFile, FromGtids
from shardmerge.worker.relay.log.relay_log import RelayLog
from shardmerge.worker.relay.model import BlockData, ReachedUntil
from shardmerge.worker.relay.serve.subscription import subscribe
from tests.support.binlog import split
from tests.support.made_source import MadeSource

SEGMENT_BYTES = 1500
SPACING = 300
START = SourcePosition("mysql-bin.000001", 4)


class Rig:
    """A relay log in a directory of its own, fed from a made source, which calls itself ``server``."""

    def __init__(self, directory: Path, source: MadeSource, server: str = "") -> None:
        self.server = server
        self.directory = directory
        self.source = source
        self.log = RelayLog(directory, "s", SEGMENT_BYTES, SPACING)
        if self.log.generation is None:
            self.log.begin(START)
        self.appender = Appender(self.log)
        self._waiting: Iterator[bytes] | None = None
        self._sent = 0

    def connect(self) -> SourcePosition:
        """As at the server that was read before; where its dump has to begin."""
        if self.server and not self.log.segments():
            self.log.connected(self.server, replace(self.log.head().position, server=self.server), None)
        start = self.appender.connect(FromFile(self.log.head().position, seed=False), self.server)
        assert isinstance(start, FromFile)
        return start.position

    def fetch_by_gtid(self, source: MadeSource, server: str) -> None:
        """From the server ``source`` is, whatever is not known; to a log that is empty or another server's."""
        known = self.log.head().position.gtid_set
        if not self.log.segments():
            self.log.connected(server, self.log.head().position, known)
        elif self.log.head().position.server != server:
            self.log.switched(server, source.position, known)
        start = self.appender.connect(FromGtids(known), server)
        assert isinstance(start, FromGtids)
        self.source, self.server, self._waiting = source, server, iter(source.dump_by_gtid(start.gtid_set))
        self.fetch()

    def fetch(self, count: int | None = None, at_once: int = 7) -> None:
        """Connect if need be; take ``count`` further events (None: all there are)."""
        if self._waiting is None:
            self._waiting = iter(self.source.dump(self.connect()))
        for number, made in enumerate(self._waiting):
            self.appender.feed(memoryview(made))
            if number % at_once == at_once - 1:
                self.appender.flush()
            if count is not None and number + 1 >= count:
                break
        self.appender.flush()

    def disconnect(self) -> None:
        self._waiting = None

    def reopen(self) -> None:
        """As after a kill: nothing but the files is left."""
        self.appender.close()
        self.__init__(self.directory, self.source, self.server)

    def served(self, start: RelayOffset | None = None, until: RelayOffset | None = None) -> list[BlockData]:
        start = start or self.log.first().offset
        until = until or self.log.head().offset
        items = list(subscribe(self.log, start, until, None, StopSignal()))
        assert isinstance(items[-1], ReachedUntil)
        return [item for item in items if isinstance(item, BlockData)]


def bytes_of(blocks: list[BlockData]) -> bytes:
    """Their events without format descriptions; checks that every block is whole and joins the one before."""
    kept: list[bytes] = []
    group: list[bytes] = []
    for before, block in zip([None, *blocks], blocks, strict=False):
        events = list(split(block.events))
        assert sum(map(len, events)) == len(block.events) == block.end.byte - block.start.byte
        assert block.start.segment == block.end.segment
        if before is not None and before.end.segment == block.start.segment:
            assert block.start == before.end
        elif before is not None:
            assert (block.start.segment, block.start.byte) == (before.end.segment + 1, 4)
            assert before.ends_group
        if before is not None and not before.ends_group:
            assert block.group_start == before.group_start
            assert block.first_event == len(group)
        else:
            assert block.group_start == block.start
            assert block.first_event == 0
            group = []
        group += events
        kept += [made for made in events if made[4] != EventType.FORMAT_DESCRIPTION]
    assert not blocks or blocks[-1].ends_group
    return b"".join(kept)
