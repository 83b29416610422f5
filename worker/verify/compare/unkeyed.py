"""Compares shard tables without a key with their target: as multisets of rows, by sums of checksums.

Rows without a key cannot be read again one by one. So all of the source's shard tables of a target are read, then, when
every lane has committed what they contained, the target. If no event touches the tables meanwhile, both sums are of one
state. The sums of several sources are added up by dmctl, which has the results of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from shardmerge.proto import compare_pb2 as pb
from shardmerge.worker.snapshot.source.raw_query import RawRow
from shardmerge.worker.verify.compare.compared_tables import UnkeyedTables
from shardmerge.worker.verify.compare.sides import RelayPlaces, SourceSide, TargetSide

_ATTEMPTS = 5
"""How often tables that change meanwhile are read: each time as a whole."""


def unkeyed_report(
    work: pb.CompareWork, table: UnkeyedTables, source: SourceSide, target: TargetSide, places: RelayPlaces
) -> pb.WorkReport:
    """The sums of both sides; unjudged, if the shard tables changed in every attempt."""
    rows = 0
    for _ in range(_ATTEMPTS):
        low = source.low()
        ours = _source_sums(table, source)
        high = source.high()
        rows = ours.rows
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
            continue
        # A statement such as TRUNCATE touches no row: after one, the tables have other sums.
        if ours != theirs and _source_sums(table, source) != ours:
            continue
        sums = pb.Multiset(
            source=ours,
            target=theirs,
            compared=len(table.plans),
            shard_tables=table.shard_tables,
            form=table.form,
        )
        return pb.WorkReport(work=work, rows=rows, multiset=sums)
    return pb.WorkReport(work=work, rows=rows, unjudged=1)


def _source_sums(table: UnkeyedTables, source: SourceSide) -> pb.ChecksumSums:
    return added_sums(row for statement in table.source_sums() for row in source.rows(statement))


def added_sums(rows: Iterable[RawRow]) -> pb.ChecksumSums:
    """Add up the rows of multiset_sums."""
    count = hashed = first = second = 0
    for row in rows:
        numbers = [int(value or 0) for value in row]
        count, hashed = count + numbers[0], hashed + numbers[1]
        first, second = first + numbers[2], second + numbers[3]
    return pb.ChecksumSums(rows=count, first=str(first), second=str(second), without_checksum=count - hashed)
