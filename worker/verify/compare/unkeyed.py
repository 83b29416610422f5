"""Compares shard tables without a key with their target: as multisets of rows, by sums of checksums.

Rows without a key cannot be read again one by one. If it is known which of the target's rows are the source's, both
sides are read in snapshots: that of the shard tables at a known position, that of the source's rows at the target with
the checkpoint of the lane that has them all. The events between these two are added to the sums of the shard tables. So
writers need not pause. A row that no shard table can have is read with those of one source, and so it is found.

Otherwise all of the source's shard tables are read, then, when every lane has committed what they contained, the
target. If no event touches the tables meanwhile, both sums are of one state. dmctl, which has the results of all
sources, judges each source's sums, or adds them up where the sources' rows are mixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace

import pymysql

from shardmerge.proto import compare_pb2 as pb
from shardmerge.worker.core.lane_hash import lane_of
from shardmerge.worker.core.mysql.connection import execute, rows, send, text_of
from shardmerge.worker.core.mysql.server_errors import ErrorKind, errno_of, kind_of
from shardmerge.worker.core.position import Located, SourcePosition
from shardmerge.worker.core.row_change import JoinedLiterals
from shardmerge.worker.snapshot.source.raw_query import RawRow
from shardmerge.worker.target.apply.dml import write_sql
from shardmerge.worker.verify.compare.compared_tables import UnkeyedTables
from shardmerge.worker.verify.compare.sides import RelayPlaces, SourceSide, TargetSide

_ATTEMPTS = 5
"""How often tables that change meanwhile are read: each time as a whole."""
_COPY = "compared_rows"
_MOST_ROWS = 100_000
_MOST_BYTES = 64 << 20
_BYTES_AT_ONCE = 1 << 20


def unkeyed_report(
    work: pb.CompareWork, table: UnkeyedTables, source: SourceSide, target: TargetSide, places: RelayPlaces
) -> pb.WorkReport:
    """The sums of both sides; unjudged, if they are of one state in no attempt.

    A statement such as TRUNCATE touches no row, so the sums under writers differ where the target has not executed it
    yet: only a difference that is the same in two attempts is one.
    """
    count = 0
    last: tuple[int, ...] = ()
    for _ in range(_ATTEMPTS):
        moving = _moving_sums(table, source, target, places) if table.is_own else None
        sums = moving or _quiet_sums(table, source, target, places)
        if sums is None:
            continue
        ours, theirs = sums
        count = ours.rows
        difference = tuple(one - other for one, other in zip(_numbers(ours), _numbers(theirs), strict=True))
        if moving and any(difference) and difference != last:
            last = difference
            continue
        found = pb.Multiset(
            source=ours,
            target=theirs,
            compared=len(table.plans),
            shard_tables=table.shard_tables,
            form=table.form,
            division=table.division,
        )
        return pb.WorkReport(work=work, rows=count, multiset=found)
    return pb.WorkReport(work=work, rows=count, unjudged=1)


_Sums = tuple[pb.ChecksumSums, pb.ChecksumSums]
"""Of the shard tables and of the target, of one state."""


def _quiet_sums(table: UnkeyedTables, source: SourceSide, target: TargetSide, places: RelayPlaces) -> _Sums | None:
    """None: an event touches the tables while they are read."""
    low = source.low()
    ours = _source_sums(table, source)
    high = source.high()
    start, end = places.locate(low), places.locate(high)
    if start.relay_id != end.relay_id:
        raise places.changed()
    places.await_lanes(end, high)
    theirs = added_sums(target.rows(table.target_sums()))
    # By now the source has written everything that a lane has committed.
    after = places.locate(source.high())
    if after.relay_id != end.relay_id:
        raise places.changed()
    if places.is_any_touched(table.plans, start.offset, after):
        return None
    # After a statement such as TRUNCATE, the tables have other sums.
    return None if ours != theirs and _source_sums(table, source) != ours else (ours, theirs)


def _moving_sums(table: UnkeyedTables, source: SourceSide, target: TargetSide, places: RelayPlaces) -> _Sums | None:
    """None: no position of the shard tables is found, the lane is within a transaction, or too many events follow."""

    def is_unchanged(low: SourcePosition, high: SourcePosition) -> bool:
        return low == high or not places.is_any_touched(table.plans, places.locate(low).offset, places.locate(high))

    with ExitStack() as at_source:
        position = at_source.enter_context(source.snapshot(is_unchanged))
        if position is None:
            return None
        start = places.locate(position)
        places.await_lanes(start, position)
        with target.snapshot() as lanes:
            if not lanes:
                raise places.changed()
            # Rows without a key are all in one lane.
            lane = lanes[lane_of(table.plans[0], (), len(lanes))]
            if lane.skip_events or (offset := places.of_lane(lane, start.relay_id)) < start.offset:
                return None
            changed = _changed_sums(table, target, places, start, Located(start.relay_id, offset))
            if changed is None:
                return None
            before, after = changed
            ours = _source_sums(table, source)
            at_source.close()
            theirs = added_sums(target.rows(table.target_sums()))
    return with_changes(ours, before, after), theirs


def _changed_sums(
    table: UnkeyedTables, target: TargetSide, places: RelayPlaces, start: Located, end: Located
) -> tuple[pb.ChecksumSums, pb.ChecksumSums] | None:
    """The sums of the rows as they were before the changes between two places, and as they were after them; None: they
    are too many, or the target has no temporary table like this one."""
    before, after = list[JoinedLiterals](), list[JoinedLiterals]()
    count = size = 0
    for change in places.changes(table.plans, start.offset, end):
        count += 1
        size += sum(map(len, (*change.before, *change.after)))
        if count <= _MOST_ROWS and size <= _MOST_BYTES:
            before += [b",".join(change.before)] if change.before else []
            after += [b",".join(change.after)] if change.after else []
    if count > _MOST_ROWS or size > _MOST_BYTES:
        return None
    with target.coded_errors():
        try:
            return _sums_of_images(table, target, before), _sums_of_images(table, target, after)
        except pymysql.MySQLError as error:
            if kind_of(errno_of(error)) not in (ErrorKind.PRIVILEGE, ErrorKind.STATEMENT):
                raise
            return None
        finally:
            target.close_plain()  # it would be idle while both sides are read


def _sums_of_images(table: UnkeyedTables, target: TargetSide, images: Sequence[JoinedLiterals]) -> pb.ChecksumSums:
    """The sums that rows with these literals have at the target. Raises ``pymysql.MySQLError``."""
    if not images:
        return pb.ChecksumSums()
    session = target.plain()
    plan = replace(table.plans[0], target_schema=target.meta_schema, target_table=_COPY)
    execute(session, f"DROP TEMPORARY TABLE IF EXISTS {plan.target_name}")
    execute(session, f"CREATE TEMPORARY TABLE {plan.target_name} LIKE {table.target_name}")
    for part in _parts(images):
        send(session, write_sql(b"INSERT", plan, part))
    return added_sums(rows(session, table.target_sums(plan.target_name).decode()))


def _parts(images: Sequence[JoinedLiterals]) -> Iterator[Sequence[JoinedLiterals]]:
    first = size = 0
    for at, image in enumerate(images):
        size += len(image)
        if at > first and size > _BYTES_AT_ONCE:
            yield images[first:at]
            first, size = at, len(image)
    yield images[first:]


def _source_sums(table: UnkeyedTables, source: SourceSide) -> pb.ChecksumSums:
    found: list[RawRow] = []
    for statement in table.source_sums():
        found += source.rows(statement)
        source.release_table()
    return added_sums(found)


def added_sums(found: Iterable[Sequence[object]]) -> pb.ChecksumSums:
    """Add up the rows of multiset_sums."""
    count = hashed = first = second = 0
    for row in found:
        numbers = [int(text_of(value) or 0) for value in row]
        count, hashed = count + numbers[0], hashed + numbers[1]
        first, second = first + numbers[2], second + numbers[3]
    return pb.ChecksumSums(rows=count, first=str(first), second=str(second), without_checksum=count - hashed)


def with_changes(sums: pb.ChecksumSums, before: pb.ChecksumSums, after: pb.ChecksumSums) -> pb.ChecksumSums:
    """Replace rows as they were by what they became."""
    count, without, first, second = (
        number - old + new for number, old, new in zip(*map(_numbers, (sums, before, after)), strict=True)
    )
    return pb.ChecksumSums(rows=count, first=str(first), second=str(second), without_checksum=without)


def _numbers(sums: pb.ChecksumSums) -> tuple[int, int, int, int]:
    return sums.rows, sums.without_checksum, int(sums.first or 0), int(sums.second or 0)
