"""Finds what follows an offset in the binlog, without decoding rows: the ends of transactions, and the first statement
that concerns the stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.xa_events import Xid, xid_of
from shardmerge.worker.core.mysql.endpoint import Endpoint
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.datasource.group_reader import GroupReader, Stated, gone
from shardmerge.worker.datasource.stream.model.ddl import ChangesRows, ChangesTables, Meaning, shown
from shardmerge.worker.relay.log.prepared_groups import PreparedGroup
from shardmerge.worker.relay.log.walk_state import NO_LIMIT
from shardmerge.worker.relay.log.xa_tracker import PrepareUnknown, XaTracker
from shardmerge.worker.relay.model import Statement


@dataclass(frozen=True, slots=True)
class TableStatement:
    """A statement that changes tables of the stream."""

    stated: Stated
    change: ChangesTables


@dataclass(frozen=True, slots=True)
class BinlogScan:
    """``end``: of the last group before ``statement``, or of the last group that was read. ``made``: Unix time at which
    its file was made, 0 for unknown. ``ends``: ends of groups with the bytes before them. ``prepared``: the XA
    transactions that wait for their end."""

    end: SourcePosition
    made: int
    size: int
    ends: tuple[tuple[int, SourcePosition], ...]
    prepared: tuple[str, ...]
    statement: TableStatement | None = None


def scan(
    source: str,
    endpoint: Endpoint,
    start: SourcePosition,
    made: int,
    prepared: Sequence[str],
    judge: Callable[[Statement], Meaning],
    most_bytes: int = NO_LIMIT,
    until: SourcePosition | None = None,
) -> BinlogScan:
    """Read the groups after ``start`` up to ``until`` or the end of the binlog, ``most_bytes`` at least, or a statement
    that changes tables. Raises STREAM_STATEMENT, STREAM_XA, and the errors of GroupReader."""
    xa = XaTracker({xid: PreparedGroup(xid, 0, 0, 0, False) for xid in map(_parse_xid, prepared)})
    reader = GroupReader(source, endpoint, start, made, keeps=False, live=True, xa=xa)
    found: TableStatement | None = None
    try:
        for item in reader.items(most_bytes, until):
            if isinstance(item, Stated):
                change = judge(item.statement)
                if isinstance(change, ChangesRows):
                    raise errors.read.STREAM_STATEMENT(
                        source=source, position=item.statement.position, statement=shown(item.statement)
                    )
                if change is not None:
                    found = TableStatement(item, change)
                    break
    except PrepareUnknown as unknown:
        reason = f"it ends {unknown.name}, which was prepared before the stream's start"
        raise errors.read.STREAM_XA(source=source, position=unknown.position, reason=reason) from unknown
    except ShardmergeError as error:
        if error.spec is not errors.relay.DUMP_ENDED:
            raise
    end = reader.end if found is None else found.stated.statement.position
    names = tuple(sorted(str(group.xid) for group in xa.waiting()))
    order = end.file_order()
    ends = tuple((size, place) for size, place in reader.ends if place.file_order() < order)
    return BinlogScan(end, reader.made, reader.read_bytes, ends, names, found)


def statements_between(source: str, endpoint: Endpoint, start: SourcePosition, end: SourcePosition) -> Iterator[Stated]:
    """All statements in the groups between two positions. Raises the errors of GroupReader."""
    if start.file_order() >= end.file_order():
        return
    reader = GroupReader(source, endpoint, start, 0, keeps=False)
    try:
        for item in reader.items(end=end):
            if isinstance(item, Stated):
                yield item
    except ShardmergeError as error:
        if error.spec is errors.relay.DUMP_ENDED:
            raise gone(source, start, f"the source's binlog ends before {end}") from error
        raise


def _parse_xid(text: str) -> Xid:
    xid = xid_of(f"XA END {text}".encode())
    if xid is None:
        raise errors.read.STREAM_OFFSET(reason=f"{text!r} is no name of an XA transaction")
    return xid
