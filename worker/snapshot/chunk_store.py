"""Stores the snapshot's records at the target: tables, chunks, their state and high watermarks.

A chunk's rows and its state commit in one target transaction that holds a share lock on the subtask's epoch row
until its end: a process of an older epoch commits nothing (I3), and a restart loads a chunk again only if none of
its rows were committed.

    snapshot_table   one row per source table of the snapshot; written when it begins
    snapshot_chunk   one row per planned chunk; written by the planner before the chunk is handed out,
                     changed once, from PLANNED to LOADED, by the reader that commits its rows

``worker/target/records/subtask_record.py`` deletes both for start-task --remove-meta.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pymysql
from pymysql.constants import ER

from shardmerge.proto import errors, failpoints
from shardmerge.worker.core.mysql.connection import Endpoint, Session, dialect_of, errno_of, quote_name
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.relay.serve.locate import GroupEnds
from shardmerge.worker.snapshot.chunk_records import ChunkResult, HighWatermark, StoredChunk, TableReport
from shardmerge.worker.snapshot.chunks import Bound, Chunk
from shardmerge.worker.snapshot.handover import Handover, build_handover
from shardmerge.worker.snapshot.watermark_gtids import missing_gtid_sets, write_gtid_sets
from shardmerge.worker.target.records import subtask_rows
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.history import interrupted_copies, passed_watermarks

if TYPE_CHECKING:
    from shardmerge.worker.relay.relay import Relay

_LOCATE_SECONDS = 600.0

_COLUMNS = (
    "`shard`, `number`, `lower_bound`, `upper_bound`, `state`, `row_count`, `byte_count`, `seconds`, "
    "`source_file`, `source_pos`, `gtid_set`, `source_server`, `relay_id`, `segment`, `byte`"
)
_PLANNED = 0
_LOADED = 1
_ROWS_PER_INSERT = 500


def _dump(bound: Bound) -> str:
    # Literals are mostly ASCII; other bytes become JSON escapes, one per byte.
    return json.dumps([value.decode("latin-1") for value in bound])


def _parse(text: str) -> Bound:
    return tuple(str(value).encode("latin-1") for value in json.loads(text))


class SnapshotStore:
    """The records of one subtask's snapshot under one epoch. Holds no connection.

    Every method raises ``pymysql.MySQLError``; those that write raise FENCED once a newer epoch has taken over.
    """

    def __init__(self, who: SubtaskKey, epoch: int) -> None:
        self.schema, self.task, self.source = self.who = who
        self.epoch = epoch
        self._chunk = f"{quote_name(who.schema)}.`snapshot_chunk`"
        self._table = f"{quote_name(who.schema)}.`snapshot_table`"
        self._subtask = who[1:]

    def fence(self, session: Session) -> None:
        """Keep the epoch from changing until the transaction ends. Raises FENCED."""
        with session.cursor() as cursor:
            cursor.execute(
                f"SELECT 1 FROM {quote_name(self.schema)}.`subtask` "
                f"WHERE `task` = %s AND `source` = %s AND `epoch` = %s {dialect_of(session).share_lock}",
                (*self._subtask, self.epoch),
            )
            found = cursor.fetchone()
        if found is None:
            raise errors.replicate.FENCED(task=self.task, source=self.source, epoch=self.epoch)

    def begin(self, session: Session, plans: Iterable[TablePlan]) -> None:
        """Record the snapshot's tables. One transaction; repeating it changes nothing."""
        session.begin()
        try:
            self.fence(session)
            present = self.read_shards(session)
            new = [plan for plan in plans if plan.shard not in present]
            rows = [(at.shard, at.table.schema, at.table.name, at.target_schema, at.target_table) for at in new]
            subtask_rows.replace(session, self.who, "snapshot_table", rows)
            session.commit()
        finally:
            session.rollback()

    def report(self, session: Session) -> tuple[TableReport, ...]:
        """The totals of every table, by shard number. The server computes them: there may be many chunks."""
        with session.cursor() as cursor:
            cursor.execute(
                "SELECT t.`source_schema`, t.`source_table`, t.`target_schema`, t.`target_table`, COUNT(c.`number`), "
                "COALESCE(SUM(c.`row_count`), 0), COALESCE(SUM(c.`byte_count`), 0), COALESCE(SUM(c.`seconds`), 0) "
                f"FROM {self._table} t LEFT JOIN {self._chunk} c "
                "ON c.`task` = t.`task` AND c.`source` = t.`source` AND c.`shard` = t.`shard` AND c.`state` = %s "
                "WHERE t.`task` = %s AND t.`source` = %s "
                "GROUP BY t.`shard`, t.`source_schema`, t.`source_table`, t.`target_schema`, t.`target_table` "
                "ORDER BY t.`shard`",
                (_LOADED, *self._subtask),
            )
            return tuple(
                TableReport(
                    f"{source_schema}.{source_table}",
                    f"{target_schema}.{target_table}",
                    int(chunks),
                    int(count),
                    int(size),
                    float(seconds),
                )
                for (
                    source_schema,
                    source_table,
                    target_schema,
                    target_table,
                    chunks,
                    count,
                    size,
                    seconds,
                ) in cursor.fetchall()
            )

    def add_chunks(self, session: Session, shard: int, chunks: Sequence[Chunk], after: Chunk | None) -> None:
        """Record planned chunks of one table. One transaction, which may be repeated: records after ``after``, the last
        one that is known to be recorded (None: none is), were not used. Raises FENCED also if the target does not have
        ``after``: it has lost transactions, and with a later chunk the table would have a gap."""
        last = -1 if after is None else after.number
        session.begin()
        try:
            self.fence(session)
            if after is not None and not subtask_rows.select(
                session, self.who, "snapshot_chunk", "1", "AND `shard` = %s AND `number` = %s", (shard, last)
            ):
                raise errors.replicate.FENCED(task=self.task, source=self.source, epoch=self.epoch)
            subtask_rows.delete(
                session, self.who, "snapshot_chunk", "AND `shard` = %s AND `number` > %s", (shard, last)
            )
            with session.cursor() as cursor:
                for start in range(0, len(chunks), _ROWS_PER_INSERT):
                    cursor.executemany(
                        f"INSERT INTO {self._chunk} "
                        "VALUES (%s, %s, %s, %s, %s, %s, %s, 0, 0, 0, '', 0, '', '', '', 0, 0)",
                        [
                            (*self._subtask, shard, chunk.number, _dump(chunk.lower), _dump(chunk.upper), _PLANNED)
                            for chunk in chunks[start : start + _ROWS_PER_INSERT]
                        ],
                    )
            session.commit()
        finally:
            session.rollback()

    def replace_chunks(self, session: Session, shard: int, stored: Sequence[StoredChunk]) -> None:
        """Record these chunks as all chunks of one table. One transaction; no reader of the epoch has begun yet."""
        session.begin()
        try:
            self.fence(session)
            with session.cursor() as cursor:
                subtask_rows.delete(session, self.who, "snapshot_chunk", "AND `shard` = %s", (shard,))
                for start in range(0, len(stored), _ROWS_PER_INSERT):
                    cursor.executemany(
                        f"INSERT INTO {self._chunk} "
                        "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
                        [
                            (
                                *self._subtask,
                                shard,
                                item.chunk.number,
                                _dump(item.chunk.lower),
                                _dump(item.chunk.upper),
                                *_state_of(item.loaded),
                            )
                            for item in stored[start : start + _ROWS_PER_INSERT]
                        ],
                    )
            failpoints.hit("snapshot.dividing")
            session.commit()
        finally:
            session.rollback()

    def forget(self, session: Session, shards: Iterable[int]) -> None:
        """Drop the records of these tables, in the caller's transaction."""
        for shard in shards:
            for table in ("snapshot_chunk", "snapshot_table", passed_watermarks.NAME, interrupted_copies.NAME):
                subtask_rows.delete(session, self.who, table, "AND `shard` = %s", (shard,))

    def record_passed(self, session: Session, shards: Iterable[int]) -> None:
        """Record that every lane has committed past all high watermarks of these tables. One transaction."""
        session.begin()
        try:
            self.fence(session)
            passed_watermarks.write(session, self.who, shards)
            session.commit()
        finally:
            session.rollback()

    def read_shards(self, session: Session) -> frozenset[int]:
        """The numbers of the tables that a snapshot has begun to copy."""
        found = subtask_rows.select(session, self.who, "snapshot_table", "`shard`")
        return frozenset(int(shard) for (shard,) in found)

    def read_chunks(self, session: Session) -> list[StoredChunk]:
        """Every recorded chunk, by table and number."""
        more = "ORDER BY `shard`, `number`"
        return [_stored(row) for row in subtask_rows.select(session, self.who, "snapshot_chunk", _COLUMNS, more)]

    def lock_chunk(self, session: Session, plan: TablePlan, number: int) -> ChunkResult | None:
        """Lock a chunk's record until the transaction ends; returns its result if it is loaded already.

        The lock makes an attempt wait for an earlier one whose COMMIT was sent but not answered.
        Raises CHUNK_FORGOTTEN.
        """
        more, values = "AND `shard` = %s AND `number` = %s FOR UPDATE", (plan.shard, number)
        found = subtask_rows.select(session, self.who, "snapshot_chunk", _COLUMNS, more, values)
        if not found:
            raise self._forgotten(plan, number)
        return _stored(found[0]).loaded

    def mark_loaded(self, session: Session, plan: TablePlan, number: int, loaded: ChunkResult) -> None:
        """Record a chunk as loaded, in the transaction that holds its rows, as its last statements.

        Raises FENCED or CHUNK_FORGOTTEN: the caller rolls back.
        """
        self.fence(session)
        with session.cursor() as cursor:
            changed = cursor.execute(
                f"UPDATE {self._chunk} SET `state` = %s, `row_count` = %s, `byte_count` = %s, `seconds` = %s, "
                "`source_file` = %s, `source_pos` = %s, `gtid_set` = %s, `source_server` = %s, "
                "`relay_id` = %s, `segment` = %s, `byte` = %s "
                "WHERE `task` = %s AND `source` = %s AND `shard` = %s AND `number` = %s AND `state` = %s",
                (*_state_of(loaded), *self._subtask, plan.shard, number, _PLANNED),
            )
        if changed != 1:
            raise self._forgotten(plan, number)

    def _forgotten(self, plan: TablePlan, number: int) -> Exception:
        return errors.snapshot.CHUNK_FORGOTTEN(
            task=self.task,
            source=self.source,
            number=number,
            schema=plan.table.schema,
            table=plan.table.name,
            meta_schema=self.schema,
        )


def _state_of(loaded: ChunkResult | None) -> tuple[object, ...]:
    """The columns from ``state`` on."""
    if loaded is None:
        return (_PLANNED, 0, 0, 0, "", 0, "", "", "", 0, 0)
    high = loaded.high
    offset = high.offset or RelayOffset(0, 0)
    return (
        _LOADED,
        loaded.rows,
        loaded.bytes,
        loaded.seconds,
        high.position.file,
        high.position.pos,
        high.position.gtid_set,
        high.position.server,
        high.relay_id if high.offset is not None else "",
        offset.segment,
        offset.byte,
    )


def _stored(row: Sequence[Any]) -> StoredChunk:
    shard, number, lower, upper, state, count, size, seconds, file, pos, gtid_set, server, relay_id, segment, byte = row
    loaded = None
    if int(state) == _LOADED:
        offset = RelayOffset(int(segment), int(byte)) if relay_id else None
        high = HighWatermark(SourcePosition(str(file), int(pos), str(gtid_set), str(server)), str(relay_id), offset)
        loaded = ChunkResult(int(count), int(size), float(seconds), high)
    return StoredChunk(int(shard), Chunk(int(number), _parse(str(lower)), _parse(str(upper))), loaded)


def read_handover(
    session: Session,
    who: SubtaskKey,
    plans: Sequence[TablePlan],
    relay: Relay,
    source: Endpoint,
    stop: StopSignal,
    *,
    replicating: bool,
    interrupted: Mapping[int, StatementPlace] = MappingProxyType({}),
) -> Handover | None:
    """The hand-over of the tables of ``plans`` that a finished snapshot has copied, in offsets of ``relay``; None when
    it has copied none of them. ``interrupted``: tables that are copied in part, by number, with the statements at which
    they leave the stream.

    ``replicating``: there are lane checkpoints. Then tables whose watermarks all lanes have cleared need no hand-over,
    and the relay log need not reach back to the watermarks of the others any more: a watermark before its beginning
    counts as its beginning. The watermarks' GTID sets are recorded, so that they can be located in another server's
    binlog too. Raises ``pymysql.MySQLError``, INCOMPLETE and what Relay.locate raises.
    """
    store = SnapshotStore(who, 0)
    cleared = passed_watermarks.read(session, who) if replicating else frozenset[int]()
    try:
        # Tables that no snapshot copied began with the stream: an incremental task that tables have joined since.
        wanted = store.read_shards(session).difference(cleared)
        plans = [plan for plan in plans if plan.shard in wanted]
        if not plans:
            return None
        stored = store.read_chunks(session)
    except pymysql.ProgrammingError as error:
        if errno_of(error) != ER.NO_SUCH_TABLE:
            raise
        return None
    ends = GroupEnds()
    handover = build_handover(
        stored,
        plans,
        source,
        who.task,
        who.source,
        relay.relay_id,
        lambda position: relay.locate(position, _LOCATE_SECONDS, stop, first_if_before=replicating, ends=ends),
        {number: place.position for number, place in interrupted.items()},
    )
    write_gtid_sets(session, who, missing_gtid_sets(stored, plans, handover, relay))
    return handover
