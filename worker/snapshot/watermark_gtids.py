"""Finds the GTID sets of high watermarks in the relay log and records them.

A chunk's reader learns its watermark as a position in a binlog file. The relay log that contains this position knows
the GTID set there, by which the position can be located in another server's binlog too. It is recorded with the chunk,
before the source can be read from another server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pymysql
from pymysql.constants import ER

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Session, errno_of, quote_name
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.relay.model import Head
from shardmerge.worker.snapshot.chunk_records import StoredChunk
from shardmerge.worker.snapshot.handover import Handover
from shardmerge.worker.target.records.history import passed_watermarks

_AT_ONCE = 500


class RelayPositions(Protocol):
    """The part of the relay log that is needed here: see shardmerge.worker.relay.relay.Relay."""

    def first(self) -> Head: ...

    def position_at(self, offset: RelayOffset) -> SourcePosition: ...


@dataclass(frozen=True, slots=True)
class WatermarkGtids:
    """The GTID set at ``place``, the high watermark of a chunk."""

    shard: int
    number: int
    place: SourcePosition
    gtid_set: str


def missing_gtid_sets(
    stored: Iterable[StoredChunk], plans: Sequence[TablePlan], handover: Handover, relay: RelayPositions
) -> Iterator[WatermarkGtids]:
    """The GTID sets of the high watermarks of ``handover`` that were recorded without one, as far as the relay log
    has them.

    ``stored``, ``plans``: what the hand-over was built from. A watermark before the beginning of the log, which counts
    as its beginning, has none. Raises RELAY_RESTARTED (retryable) and RELAY_DAMAGED.
    """
    first = relay.first()
    offsets = {plan.shard: iter(handover.tables[plan.shard].highs) for plan in plans}
    places: dict[RelayOffset, SourcePosition] = {}
    for item in stored:
        if item.shard not in offsets:
            continue
        offset = next(offsets[item.shard])
        if item.loaded is None:
            continue
        mark = item.loaded.high.position
        if mark.gtid_set or offset < first.offset:
            continue
        if offset not in places:
            places[offset] = _place_of(offset, relay)
        gtid_set = places[offset].gtid_set
        if gtid_set and (offset > first.offset or mark.reaches(places[offset])):
            yield WatermarkGtids(item.shard, item.chunk.number, mark, gtid_set)


def _place_of(offset: RelayOffset, relay: RelayPositions) -> SourcePosition:
    try:
        return relay.position_at(offset)
    except ShardmergeError as error:
        # Purged since, or in a tail that was lost and is fetched again: the set is found by a later call, or never.
        if error.spec not in (errors.relay.OFFSET_PURGED, errors.relay.OFFSET_NOT_GROUP_END):
            raise
        return SourcePosition("", 0)


def write_gtid_sets(session: Session, who: SubtaskKey, sets: Iterable[WatermarkGtids]) -> None:
    """Record the sets. No fence is needed: a watermark's GTID set is a fact. Raises ``pymysql.MySQLError``."""
    batch: list[WatermarkGtids] = []
    for item in sets:
        batch.append(item)
        if len(batch) == _AT_ONCE:
            _write(session, who, batch)
            batch = []
    if batch:
        _write(session, who, batch)


def _write(session: Session, who: SubtaskKey, batch: Sequence[WatermarkGtids]) -> None:
    names = "SELECT %s AS `shard`, %s AS `number`, %s AS `file`, %s AS `pos`, %s AS `server`, %s AS `known`"
    lines = " UNION ALL ".join([names, *["SELECT %s, %s, %s, %s, %s, %s"] * (len(batch) - 1)])
    values = [
        value
        for item in batch
        for value in (item.shard, item.number, item.place.file, item.place.pos, item.place.server, item.gtid_set)
    ]
    with session.cursor() as cursor:
        cursor.execute(
            f"UPDATE {quote_name(who.schema)}.`snapshot_chunk` c JOIN ({lines}) k "
            "ON c.`shard` = k.`shard` AND c.`number` = k.`number` SET c.`gtid_set` = k.`known` "
            "WHERE c.`task` = %s AND c.`source` = %s AND c.`gtid_set` = '' AND c.`source_pos` = k.`pos` "
            "AND BINARY c.`source_file` = BINARY k.`file` AND BINARY c.`source_server` = BINARY k.`server`",
            (*values, who.task, who.source),
        )


def needs_file_watermark(session: Session, who: SubtaskKey, shards: frozenset[int] | None) -> bool:
    """Whether lanes may still need a watermark of these tables (None: of any table) that has no GTID set, so that it
    can only be located in the binlog files of its own server.

    Raises ``pymysql.MySQLError``.
    """
    try:
        with session.cursor() as cursor:
            cursor.execute(
                f"SELECT DISTINCT `shard` FROM {quote_name(who.schema)}.`snapshot_chunk` "
                "WHERE `task` = %s AND `source` = %s AND `source_file` <> '' AND `gtid_set` = ''",
                (who.task, who.source),
            )
            found = {int(row[0]) for row in cursor.fetchall()}
    except pymysql.MySQLError as error:
        if errno_of(error) != ER.NO_SUCH_TABLE:
            raise
        return False
    wanted = found if shards is None else found & shards
    return bool(wanted) and not wanted <= passed_watermarks.read(session, who)
