"""Finds where a stream begins at a source, the structures that its tables have there, and the stream's columns."""

from __future__ import annotations

import uuid
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pyspark.sql.types import StructType

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.event_kinds import GTIDS
from shardmerge.worker.binlog.events import EventType, FormatDescription, checksum_matches, parse_header, parse_rotate
from shardmerge.worker.binlog.gtid_set import GtidSet
from shardmerge.worker.core.mysql import server_clock
from shardmerge.worker.core.mysql.connection import ServerInfo, Session, rows, server_info, text_of
from shardmerge.worker.core.mysql.endpoint import Endpoint
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.table import Table
from shardmerge.worker.datasource.group_reader import Described, EventBlock, GroupReader, file_made
from shardmerge.worker.datasource.plan.read_plan import ReadSource, frame_columns
from shardmerge.worker.datasource.planning import check_cascades, check_server, plan_table, tables_at
from shardmerge.worker.datasource.stream.binlog.transactions import transactions_of
from shardmerge.worker.datasource.stream.model.offset import SourceOffset
from shardmerge.worker.datasource.stream.model.options import StreamOptions
from shardmerge.worker.datasource.stream.model.start import AfterGtids, AtPosition, AtTime, Start, WithSnapshot
from shardmerge.worker.datasource.stream.tables.stream_schema import stream_schema
from shardmerge.worker.datasource.stream.tables.structures import tables_before
from shardmerge.worker.relay.fetch.dump_connection import Dump
from shardmerge.worker.relay.fetch.dump_start import FromGtids
from shardmerge.worker.relay.fetch.file_times import file_times, last_before
from shardmerge.worker.relay.fetch.server_id import random_server_id
from shardmerge.worker.relay.fetch.source_state import gtid_set_at
from shardmerge.worker.relay.log.files import FIRST_BYTE
from shardmerge.worker.rules.rules import check_partitions
from shardmerge.worker.snapshot.source.chunk_source import source_session


@dataclass(frozen=True, slots=True)
class TablesNow:
    """``position``: an end of a group at which the tables are as they are now."""

    tables: tuple[Table, ...]
    position: SourcePosition


def tables_now(source: ReadSource, options: StreamOptions) -> TablesNow:
    """Raises the errors of proto/errors/read.py, of the rules and of the connections."""
    with source_session(source.connection(), source.source) as session:
        return _tables_now(session, server_info(session), source, options)


def load_schema(options: StreamOptions) -> StructType:
    """The columns of a stream at load(): those of the tables as they are then. Raises what :func:`tables_now`
    raises."""
    plans = [
        plan_table(number, table, source, with_rows=False)
        for source in options.read.sources
        for number, table in enumerate(tables_now(source, options).tables)
    ]
    check_partitions(plans)
    return stream_schema(frame_columns(plans, options.read.columns))


def first_offset(source: ReadSource, options: StreamOptions) -> SourceOffset:
    """Raises STREAM_START, and what :func:`tables_now` raises."""
    endpoint = source.connection()
    start = options.starts[source.source]
    with source_session(endpoint, source.source) as session:
        info = server_info(session)
        now = _tables_now(session, info, source, options)
        place = _Finder(source.source, endpoint, session, info, now.position).place_of(start)
    known = tables_before(source, endpoint, options.read.target, now.tables, place, now.position)
    return SourceOffset(place, file_made(source.source, endpoint, place), known, isinstance(start, WithSnapshot))


def _tables_now(session: Session, info: ServerInfo, source: ReadSource, options: StreamOptions) -> TablesNow:
    check_server(session, source.source, errors.read.STREAM_SERVER)
    tables, position = tables_at(session, info, source, options.read)
    check_cascades(session, source.source, tables)
    with_rows = isinstance(options.starts[source.source], WithSnapshot)
    for number, table in enumerate(tables):
        plan_table(number, table, source, with_rows=with_rows)
    return TablesNow(tuple(tables), position)


@dataclass(frozen=True, slots=True)
class _Finder:
    """Finds the position of a start at one server. ``end``: of its binlog."""

    source: str
    endpoint: Endpoint
    session: Session
    info: ServerInfo
    end: SourcePosition

    def place_of(self, start: Start) -> SourcePosition:
        match start:
            case AtPosition():
                return self._checked(start)
            case AfterGtids():
                return self._after_gtids(start)
            case AtTime():
                return self._at_time(start)
            case _:
                return self.end

    def _refused(self, start: Start, reason: str) -> ShardmergeError:
        return errors.read.STREAM_START(source=self.source, start=start, reason=reason)

    def _checked(self, start: AtPosition) -> SourcePosition:
        """The position, if it is the end of a group."""
        place = replace(start.position, pos=max(start.position.pos, FIRST_BYTE), server=self.info.identity)
        if place.file_order() > self.end.file_order():
            raise self._refused(start, f"the binlog ends at {self.end.file}:{self.end.pos}")
        if place.file_order() == self.end.file_order():
            return place
        reader = GroupReader(self.source, self.endpoint, place, 0, keeps=False)
        try:
            for _ in reader.items(most_bytes=1):
                pass
        except ShardmergeError as error:
            if error.spec in (errors.relay.GROUP_BROKEN, errors.relay.EVENT_OVERLAP, errors.decode.MALFORMED_EVENT):
                raise self._refused(start, "it is not the end of a transaction") from error
            if error.spec is errors.read.STREAM_LOG_GONE:
                raise self._refused(start, f"the binlog has no events after it ({error.message})") from error
            if error.spec is not errors.relay.DUMP_ENDED:
                raise
        return place

    def _after_gtids(self, start: AfterGtids) -> SourcePosition:
        """The only position with exactly the transactions of the set before it."""
        with closing(Dump.connect(self.source, self.endpoint)) as dump:
            state = dump.state()
            unknown = state.never_had(start.gtid_set)
            if unknown:
                raise self._refused(start, f"the server never had transaction {unknown}")
            missing = state.missing_after(start.gtid_set)
            if missing:
                raise self._refused(start, f"the server has purged transaction {missing}, which is not in the set")
            if not state.gtids:
                raise self._refused(start, "the server's transactions have no GTIDs")
            place = self._first_unknown(dump, start.gtid_set)
        known = self._set_before(place)
        later, earlier = GtidSet(known).lacks(GtidSet(start.gtid_set)), GtidSet(start.gtid_set).lacks(GtidSet(known))
        if later or earlier:
            reason = f"the binlog has no position with exactly these transactions before it: {later or earlier}"
            raise self._refused(start, reason)
        return place

    def _first_unknown(self, dump: Dump, gtid_set: str) -> SourcePosition:
        """Where the first transaction begins that is not in the set."""
        file = ""
        dump.begin(FromGtids(gtid_set), random_server_id(), str(uuid.uuid4()), wait=False)
        try:
            while True:
                event = dump.event()
                if event is None:
                    dump.receive()
                    continue
                header = parse_header(event, 0, self.source)
                if header.type == EventType.ROTATE:
                    file = parse_rotate(bytes(event), checksum_matches(event), self.source).file
                elif header.type in GTIDS and not header.is_artificial:
                    return SourcePosition(file, header.log_pos - header.size, server=self.info.identity)
        except ShardmergeError as error:
            if error.spec is errors.relay.DUMP_ENDED:
                return self.end
            if error.spec in (errors.relay.SOURCE_LOG_GONE, errors.relay.SOURCE_GTIDS_GONE):
                raise self._refused(AfterGtids(gtid_set), error.message) from error
            raise

    def _set_before(self, place: SourcePosition) -> str:
        if self.info.is_mariadb:
            return gtid_set_at(self.session, place) or ""
        begin = replace(place, pos=FIRST_BYTE)
        reader = GroupReader(self.source, self.endpoint, begin, 0, keeps=False)
        for _ in reader.items(end=place):
            pass
        return reader.gtid_set()

    def _at_time(self, start: AtTime) -> SourcePosition:
        """Where the first transaction begins whose commit time is not before the start's time."""
        moment = server_clock.parse_time(self.session, start.text, self.source)
        files = [text_of(row[0]) for row in rows(self.session, "SHOW BINARY LOGS")]
        file = last_before(files, moment, lambda name: file_times(self.source, self.endpoint, name))
        if file is None:
            begun = datetime.fromtimestamp(file_times(self.source, self.endpoint, files[0]).begun, UTC)
            raise self._refused(start, f"the binlog begins at {begun.isoformat(sep=' ', timespec='seconds')}")
        begin = SourcePosition(file, FIRST_BYTE, server=self.info.identity)
        wanted = round(moment * 1_000_000)
        checksum = False
        if begin.file_order() >= self.end.file_order():
            return self.end
        for item in GroupReader(self.source, self.endpoint, begin, 0).items(end=self.end):
            if isinstance(item, Described):
                checksum = FormatDescription.parse(item.event, self.source).checksum
            elif isinstance(item, EventBlock):
                for transaction in transactions_of(item.events, item.begin, checksum, self.source):
                    if transaction.commit_micros >= wanted:
                        return replace(item.begin, pos=transaction.begin)
        return self.end
