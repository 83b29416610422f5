"""The GTID sets of high watermarks, learned from the relay log that has them.

A chunk's reader is told a place in a file. The relay log that holds this place knows the GTID set there, by which
another server's binlog has it, too: it is recorded with the chunk, before the source can be read from elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pymysql
from pymysql.constants import ER

from proto import errors
from proto.errors import ShardmergeError
from worker.connection import Session, errno_of, quote_name
from worker.plan import TablePlan
from worker.position import RelayOffset, SourcePosition
from worker.relay.model import Head
from worker.snapshot import passed
from worker.snapshot.handover import Handover
from worker.snapshot.records import StoredChunk

_AT_ONCE = 500


class Known(Protocol):
    """What is asked of the relay log: see worker.relay.relay.Relay."""

    def first(self) -> Head: ...

    def position_at(self, offset: RelayOffset) -> SourcePosition: ...


@dataclass(frozen=True, slots=True)
class KnownSet:
    """The GTID set at a chunk's mark, which is ``place``."""

    shard: int
    number: int
    place: SourcePosition
    gtid_set: str


def unknown_sets(
    stored: Iterable[StoredChunk], plans: Sequence[TablePlan], handover: Handover, relay: Known
) -> Iterator[KnownSet]:
    """The sets of all marks of ``handover`` that were recorded without one, as far as the relay log tells them.

    ``stored``, ``plans``: what the hand-over was built of. A mark that was taken for the beginning of the log, because
    it lies before that, has none. Raises RELAY_RESTARTED (retryable) and RELAY_DAMAGED.
    """
    first = relay.first()
    offsets = {plan.shard: iter(handover.tables[plan.table.schema, plan.table.name].highs) for plan in plans}
    places: dict[RelayOffset, SourcePosition] = {}
    for item in stored:
        if item.shard not in offsets or item.loaded is None:
            continue
        offset, mark = next(offsets[item.shard]), item.loaded.high.position
        if mark.gtid_set or offset < first.offset:
            continue
        if offset not in places:
            places[offset] = _place_of(offset, relay)
        gtid_set = places[offset].gtid_set
        if gtid_set and (offset > first.offset or mark.reaches(places[offset])):
            yield KnownSet(item.shard, item.chunk.number, mark, gtid_set)


def _place_of(offset: RelayOffset, relay: Known) -> SourcePosition:
    try:
        return relay.position_at(offset)
    except ShardmergeError as error:
        # Purged since, or in a tail that was lost and is fetched again: the set is learned another time, or not at all.
        if error.spec not in (errors.relay.OFFSET_PURGED, errors.relay.OFFSET_NOT_GROUP_END):
            raise
        return SourcePosition("", 0)


def write_sets(session: Session, schema: str, task: str, source: str, sets: Iterable[KnownSet]) -> None:
    """Record them: facts about these very marks, whoever writes them. Raises ``pymysql.MySQLError``."""
    batch: list[KnownSet] = []
    for item in sets:
        batch.append(item)
        if len(batch) == _AT_ONCE:
            _write(session, schema, task, source, batch)
            batch = []
    if batch:
        _write(session, schema, task, source, batch)


def _write(session: Session, schema: str, task: str, source: str, batch: Sequence[KnownSet]) -> None:
    names = "SELECT %s AS `shard`, %s AS `number`, %s AS `file`, %s AS `pos`, %s AS `server`, %s AS `known`"
    lines = " UNION ALL ".join([names, *["SELECT %s, %s, %s, %s, %s, %s"] * (len(batch) - 1)])
    given = [
        value
        for item in batch
        for value in (item.shard, item.number, item.place.file, item.place.pos, item.place.server, item.gtid_set)
    ]
    with session.cursor() as cursor:
        cursor.execute(
            f"UPDATE {quote_name(schema)}.`snapshot_chunk` c JOIN ({lines}) k "
            "ON c.`shard` = k.`shard` AND c.`number` = k.`number` SET c.`gtid_set` = k.`known` "
            "WHERE c.`task` = %s AND c.`source` = %s AND c.`gtid_set` = '' AND c.`source_pos` = k.`pos` "
            "AND BINARY c.`source_file` = BINARY k.`file` AND BINARY c.`source_server` = BINARY k.`server`",
            (*given, task, source),
        )


def known_by_file_alone(session: Session, schema: str, task: str, source: str, shards: frozenset[int] | None) -> bool:
    """Whether lanes may still need a mark of these tables (None: of any) that only the files of one server tell.

    Raises ``pymysql.MySQLError``.
    """
    try:
        with session.cursor() as cursor:
            cursor.execute(
                f"SELECT DISTINCT `shard` FROM {quote_name(schema)}.`snapshot_chunk` "
                "WHERE `task` = %s AND `source` = %s AND `source_file` <> '' AND `gtid_set` = ''",
                (task, source),
            )
            found = {int(row[0]) for row in cursor.fetchall()}
    except pymysql.MySQLError as error:
        if errno_of(error) != ER.NO_SUCH_TABLE:
            raise
        return False
    wanted = found if shards is None else found & shards
    return bool(wanted) and not wanted <= passed.read(session, schema, task, source)
