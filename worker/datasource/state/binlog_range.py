"""Reads a source's binlog between two positions: its row changes, and the statements that make them incomplete.

Each call opens a dump connection of its own, which ends with it: a server ends a dump whose client does not read. The
events are those of the source's files; the relay log is not involved.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.decoder import BlockDecoder, Resolve
from shardmerge.worker.binlog.event_kinds import HEARTBEATS
from shardmerge.worker.binlog.events import (
    CHECKSUM_SIZE,
    FLAG_ARTIFICIAL,
    EventHeader,
    EventType,
    FormatDescription,
    checksum_matches,
    event_name,
    parse_header,
    parse_heartbeat,
    parse_rotate,
)
from shardmerge.worker.binlog.query_text import (
    QUERIES,
    QueryEvent,
    commits_xa,
    ends,
    is_control,
    parse,
    rolls_back_xa,
    statement_of,
)
from shardmerge.worker.binlog.transaction_payload import parse_payload
from shardmerge.worker.binlog.xa_events import Xid, parse_xa_prepare, xid_of
from shardmerge.worker.core.mysql.endpoint import Endpoint
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.row_change import RowChange
from shardmerge.worker.relay.fetch.dump_connection import Dump
from shardmerge.worker.relay.fetch.dump_start import LARGEST_DUMP_POSITION, FromFile
from shardmerge.worker.relay.fetch.omitted_positions import omits_positions
from shardmerge.worker.relay.fetch.server_id import random_server_id

_BLOCK_BYTES = 1 << 20
_LARGEST_BLOCK = 64 << 20
_WRAP = 1 << 32


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of the binlog that is not transaction control. ``at``: where it ends."""

    query: QueryEvent
    at: SourcePosition


def file_made(source: str, endpoint: Endpoint, position: SourcePosition) -> int:
    """The Unix time at which the binlog file of ``position`` was made. Raises the errors of the dump."""
    dump = _dump(source, endpoint, position)
    try:
        for event in _events(dump):
            if event[4] == EventType.FORMAT_DESCRIPTION:
                return parse_header(event, 0, source).timestamp
    finally:
        dump.close()
    raise AssertionError("a dump has no end")


class BinlogRange:
    """Reads the binlog from ``position`` on, a part with each call of :meth:`changes_up_to`.

    ``made``: see :func:`file_made`. ``resolve``: the plans of the tables whose changes are wanted. ``check``: called
    with each statement; it may raise. ``unknown_xa``: the error for the end of an XA transaction with unknown rows.
    """

    def __init__(
        self,
        source: str,
        endpoint: Endpoint,
        position: SourcePosition,
        made: int,
        resolve: Resolve,
        check: Callable[[Statement], None],
        unknown_xa: Callable[[SourcePosition], ShardmergeError],
    ) -> None:
        self._source, self._endpoint = source, endpoint
        self.position = position
        self._made = made
        self._resolve, self._check, self._unknown_xa = resolve, check, unknown_xa
        self._prepared: set[Xid] = set()

    def changes_up_to(self, end: SourcePosition) -> Iterator[list[RowChange]]:
        """The changes from :attr:`position`, which moves to ``end``, both ends of event groups of one server.

        After an error the range must not be used any more. Raises the errors of the dump and of the decoder,
        ``read.BINLOG_GONE`` if the file is another one than before, and what the callables raise.
        """
        if self.position.file_order() >= end.file_order():
            return
        dump = _dump(self._source, self._endpoint, self.position)
        try:
            walk = _Walk(self, self._source, self.position, self._made, end)
            for event in _events(dump):
                yield from walk.step(event)
                if walk.is_done:
                    break
            self._made = walk.made
            self.position = replace(end, file=walk.file, pos=walk.pos)
        finally:
            dump.close()

    def decoder(self) -> BlockDecoder:
        return BlockDecoder(self._resolve, source_keys=True, source=self._source)

    def check(self, statement: Statement) -> None:
        self._check(statement)

    def prepare(self, xid: Xid) -> None:
        """The transaction was prepared within the range: the decoder knows that it has no rows of the tables."""
        self._prepared.add(xid)

    def end_xa(self, statement: bytes, at: SourcePosition) -> None:
        """``XA COMMIT`` or ``XA ROLLBACK`` of a prepared transaction."""
        xid = xid_of(statement)
        if xid is not None and xid in self._prepared:
            self._prepared.discard(xid)
        elif not rolls_back_xa(statement):
            raise self._unknown_xa(at)

    def unknown_xa(self, at: SourcePosition) -> ShardmergeError:
        return self._unknown_xa(at)


def _dump(source: str, endpoint: Endpoint, position: SourcePosition) -> Dump:
    if position.pos > LARGEST_DUMP_POSITION:
        reason = f"a dump cannot begin at byte {position.pos} of a file: the command has 32 bits for it"
        raise errors.read.BINLOG_GONE(source=source, position=position, reason=reason)
    dump = Dump.connect(source, endpoint)
    try:
        dump.begin(FromFile(position, seed=False), random_server_id(), str(uuid.uuid4()))
    except BaseException:
        dump.close()
        raise
    return dump


def _events(dump: Dump) -> Iterator[bytes]:
    """Every event that arrives, for ever."""
    while True:
        dump.receive()
        while (event := dump.event()) is not None:
            yield bytes(event)


class _Walk:
    """The events of one dump. ``file``, ``pos``: the end of the last event; ``made``: of its file."""

    def __init__(self, owner: BinlogRange, source: str, start: SourcePosition, made: int, end: SourcePosition) -> None:
        self._owner, self._source = owner, source
        self._server = start.server
        self.file, self.pos, self.made = start.file, start.pos, made
        self._end = end.file_order()
        self._is_first_file = True
        self._description: FormatDescription | None = None
        self._decoder = owner.decoder()
        self._block = bytearray()
        self.is_done = False

    def step(self, event: bytes) -> Iterator[list[RowChange]]:
        """Process one event; yields the changes of the blocks that are complete."""
        header = parse_header(event, 0, self._source)
        if header.size != len(event):
            raise self._garbled(f"an event of {header.size} bytes came as {len(event)}")
        kind = header.type
        if kind == EventType.FORMAT_DESCRIPTION:
            yield from self._flush()
            self._describe(event, header)
            self._look_at_end()
        elif kind == EventType.ROTATE:
            yield from self._flush()
            target = parse_rotate(event, checksum_matches(event), self._source)
            if self._description is None and target.file != self.file:
                raise self._gone(f"the source sends file {target.file} in its place")
            if target.file != self.file:
                self._is_first_file = False
                self.file, self.pos = target.file, target.position
            self._look_at_end()
        elif kind in HEARTBEATS:
            beat = parse_heartbeat(event, checksum_matches(event), self._source)
            if beat.file == self.file and beat.position > self.pos and not self._block:
                self.pos = beat.position  # events that a dump never sends
                self._look_at_end()
        else:
            self._move(header)
            if kind == EventType.TRANSACTION_PAYLOAD:
                yield from self._add_payload(event, header)
            ends_group = kind == EventType.TRANSACTION_PAYLOAD or self._add(event, header)
            # The end is that of a group.
            if self._reaches_end() or len(self._block) > (_BLOCK_BYTES if ends_group else _LARGEST_BLOCK):
                yield from self._flush()
            self._look_at_end()

    def _describe(self, event: bytes, header: EventHeader) -> None:
        self._description = FormatDescription.parse(event, self._source)
        if self._is_first_file and header.timestamp != self.made:
            raise self._gone(f"the source has another file {self.file} than then")
        self.made = header.timestamp
        if header.log_pos and not header.flags & FLAG_ARTIFICIAL:
            self.pos = max(self.pos, header.log_pos)
        self._decoder.open(event)

    def _move(self, header: EventHeader) -> None:
        """Determine where the event ends."""
        description = self._description
        if description is None:
            raise self._garbled("an event before the format description")
        if header.flags & FLAG_ARTIFICIAL or (header.log_pos == 0 and not omits_positions(description)):
            raise self._garbled(f"an event of type {event_name(header.type)} is marked as not being in any file")
        if header.log_pos == 0:
            self.pos += header.size
            return
        pos = self.pos - self.pos % _WRAP + header.log_pos
        if pos < self.pos:
            pos += _WRAP
        if pos < self.pos + header.size:
            raise self._garbled(f"an event that ends at {header.log_pos} begins before {self.pos}")
        self.pos = pos

    def _add(self, event: bytes, header: EventHeader) -> bool:
        """Add the event to the block; whether a group ends with it."""
        kind = header.type
        if kind in QUERIES:
            return self._add_query(event, kind)
        self._block += event
        if kind == EventType.XA_PREPARE:
            self._prepare(event)
            return True
        return kind == EventType.XID

    def _add_payload(self, event: bytes, header: EventHeader) -> Iterator[list[RowChange]]:
        """Add the events of a compressed transaction, which may be much larger than a block."""
        if self._checked and not checksum_matches(event):
            raise self._damaged()
        payload = parse_payload(
            lambda at, size: event[at : at + size], len(event), self._checked, header.log_pos, self._source
        )
        for inner in payload.events():
            self._add(inner, parse_header(inner, 0, self._source))
            if len(self._block) > _LARGEST_BLOCK:
                yield from self._flush()

    def _add_query(self, event: bytes, kind: int) -> bool:
        statement = statement_of(event, kind, self._checked, self._source)
        if statement is None or (self._checked and not checksum_matches(event)):
            raise self._damaged()
        if kind == EventType.EXECUTE_LOAD_QUERY or not is_control(statement):
            self._owner.check(Statement(parse(event, kind, self._checked, self._source), self._here()))
            self._block += event
            return False  # the group may continue: MariaDB's CREATE TABLE … SELECT
        if commits_xa(statement) or rolls_back_xa(statement):
            self._owner.end_xa(statement, self._here())
        self._block += event
        return ends(statement)

    def _prepare(self, event: bytes) -> None:
        prepared = parse_xa_prepare(event, self._checked, self._source)
        if not prepared.one_phase:
            self._owner.prepare(prepared.xid)

    @property
    def _checked(self) -> bool:
        return self._description is not None and self._description.checksum

    def _flush(self) -> Iterator[list[RowChange]]:
        events, self._block = bytes(self._block), bytearray()
        if not events:
            return
        try:
            yield self._decoder.decode(events)
        except ShardmergeError as error:
            if error.spec is errors.decode.PREPARED_ROWS:
                raise self._owner.unknown_xa(self._here()) from error
            raise

    def _reaches_end(self) -> bool:
        return self._here().file_order() >= self._end

    def _look_at_end(self) -> None:
        self.is_done = self.is_done or (self._reaches_end() and not self._block)

    def _here(self) -> SourcePosition:
        return SourcePosition(self.file, self.pos, server=self._server)

    def _gone(self, reason: str) -> ShardmergeError:
        return errors.read.BINLOG_GONE(source=self._source, position=self._here(), reason=reason)

    def _garbled(self, reason: str) -> ShardmergeError:
        return errors.relay.BAD_PACKET(source=self._source, position=self._here(), reason=reason)

    def _damaged(self) -> ShardmergeError:
        return self._garbled(f"an event fails its checksum of {CHECKSUM_SIZE} bytes")
