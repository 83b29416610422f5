"""Lane checkpoints: how far a lane has committed, written in the same transaction as its rows (I2)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from shardmerge.proto import errors
from shardmerge.worker.core.mysql.connection import Session, quote_name, quote_text, text_of
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.stream import Stream
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.target.records import subtask_record, subtask_rows

_COLUMNS = (
    "`lane`, `epoch`, `seq`, `relay_id`, `segment`, `byte`, `skip_events`, "
    "`source_file`, `source_pos`, `gtid_set`, `source_server`, `commit_time`"
)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The lane has applied everything in the relay log before ``offset``, and ``skip_events`` events of the group that
    starts there.

    ``position`` is the same position at the source, for use with another relay log (``relay_id``). ``seq`` counts the
    lane's commits and its stream's statements: a commit names the value that it found, so of two tasks with the same
    epoch only one can commit, and none after a commit or a statement that the target has lost.
    """

    lane: int
    epoch: int
    seq: int
    relay_id: str
    offset: RelayOffset
    skip_events: int
    position: SourcePosition
    commit_time: float

    def moved(self, offset: RelayOffset, skip_events: int, position: SourcePosition, commit_time: float) -> Checkpoint:
        """The checkpoint that the next commit writes."""
        return replace(
            self,
            seq=self.seq + 1,
            offset=offset,
            skip_events=skip_events,
            position=position,
            commit_time=commit_time,
        )


def _from_row(row: tuple[object, ...]) -> Checkpoint:
    lane, epoch, seq, relay_id, segment, byte, skip, file, pos, gtid_set, server, commit_time = map(text_of, row)
    return Checkpoint(
        lane=int(lane),
        epoch=int(epoch),
        seq=int(seq),
        relay_id=relay_id,
        offset=RelayOffset(int(segment), int(byte)),
        skip_events=int(skip),
        position=SourcePosition(file, int(pos), gtid_set, server),
        commit_time=float(commit_time),
    )


def read_all(connection: Session, who: SubtaskKey, stream: Stream = Stream.MAIN) -> tuple[Checkpoint, ...]:
    """The checkpoint of every lane of the stream, by lane number."""
    return tuple(map(_from_row, subtask_rows.select(connection, who, stream.table, _COLUMNS, "ORDER BY `lane`")))


def read_begun(connection: Session, who: SubtaskKey) -> tuple[Checkpoint, ...]:
    """As :func:`read_all`, for a subtask in phase REPLICATE. Raises NO_START when there are none."""
    found = read_all(connection, who)
    if not found:
        raise errors.replicate.NO_START(
            task=who.task, source=who.source, phase=subtask_record.Phase.REPLICATE.value, schema=who.schema
        )
    return found


def read_locked(
    connection: Session, who: SubtaskKey, lane: int, epoch: int, stream: Stream = Stream.MAIN
) -> Checkpoint:
    """One lane's checkpoint, read under its row lock.

    The lock waits for a transaction of this lane whose COMMIT was sent but not answered, so the result is final. The
    caller ends the transaction. Raises FENCED.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT {_COLUMNS} FROM {quote_name(who.schema)}.`{stream.table}` "
            "WHERE `task` = %s AND `source` = %s AND `lane` = %s FOR UPDATE",
            (who.task, who.source, lane),
        )
        row = cursor.fetchone()
    found = None if row is None else _from_row(row)
    if found is None or found.epoch != epoch:
        raise errors.replicate.FENCED(task=who.task, source=who.source, epoch=epoch)
    return found


def is_committed(
    connection: Session, who: SubtaskKey, lane: int, epoch: int, seq: int, stream: Stream = Stream.MAIN
) -> bool:
    """Whether the target has commit ``seq`` of the lane, perhaps with statements after it that the lane does not know
    yet."""
    found = subtask_rows.select(connection, who, stream.table, "`epoch`, `seq`", f"AND `lane` = {lane}")
    return any(int(row[0]) == epoch and int(row[1]) >= seq for row in found)


def count_statement(connection: Session, who: SubtaskKey, stream: Stream) -> None:
    """A statement that the stream has executed counts as a commit of each of its lanes, inside the caller's
    transaction: a lane whose target has lost the statement does not commit."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE {quote_name(who.schema)}.`{stream.table}` SET `seq` = `seq` + 1 "
            "WHERE `task` = %s AND `source` = %s",
            (who.task, who.source),
        )


def insert(
    connection: Session,
    who: SubtaskKey,
    checkpoints: tuple[Checkpoint, ...],
    stream: Stream = Stream.MAIN,
) -> None:
    """Write the first checkpoints of a stream, inside the caller's transaction."""
    with connection.cursor() as cursor:
        for item in checkpoints:
            cursor.execute(
                f"INSERT INTO {quote_name(who.schema)}.`{stream.table}` (`task`, `source`, {_COLUMNS}) "
                "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
                (
                    who.task,
                    who.source,
                    item.lane,
                    item.epoch,
                    item.seq,
                    item.relay_id,
                    item.offset.segment,
                    item.offset.byte,
                    item.skip_events,
                    item.position.file,
                    item.position.pos,
                    item.position.gtid_set,
                    item.position.server,
                    item.commit_time,
                ),
            )


def replace_all(
    connection: Session,
    who: SubtaskKey,
    found: tuple[Checkpoint, ...],
    following: tuple[Checkpoint, ...],
) -> None:
    """Replace the checkpoints ``found`` by ``following``, inside the caller's transaction.

    Raises FENCED when the checkpoints are no longer ``found``; the caller's transaction is rolled back then.
    """
    remove(connection, who, found)
    insert(connection, who, following)


def remove(
    connection: Session,
    who: SubtaskKey,
    found: tuple[Checkpoint, ...],
    stream: Stream = Stream.MAIN,
) -> None:
    """Delete the stream's checkpoints, which are ``found`` (at least one), inside the caller's transaction.

    Raises FENCED when the checkpoints are no longer ``found``; the caller's transaction is rolled back then.
    """
    table = f"{quote_name(who.schema)}.`{stream.table}`"
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT `lane`, `epoch`, `seq` FROM {table} WHERE `task` = %s AND `source` = %s "
            "ORDER BY `lane` FOR UPDATE",
            (who.task, who.source),
        )
        now = [tuple(map(int, row)) for row in cursor.fetchall()]
        if now != [(item.lane, item.epoch, item.seq) for item in found]:
            cursor.execute("ROLLBACK")
            raise errors.replicate.FENCED(task=who.task, source=who.source, epoch=found[0].epoch)
        cursor.execute(f"DELETE FROM {table} WHERE `task` = %s AND `source` = %s", (who.task, who.source))


def update_statement(who: SubtaskKey, item: Checkpoint, stream: Stream = Stream.MAIN) -> bytes:
    """The UPDATE that moves a lane to ``item``: it must change exactly one row.

    It changes none when a newer epoch has taken over, or when another task with the same epoch has committed since
    then: then the lane is a zombie and must roll back.
    """
    position = item.position
    return (
        f"UPDATE {quote_name(who.schema)}.`{stream.table}` SET `seq` = {item.seq}, "
        f"`relay_id` = {quote_text(item.relay_id)}, "
        f"`segment` = {item.offset.segment}, `byte` = {item.offset.byte}, `skip_events` = {item.skip_events}, "
        f"`source_file` = {quote_text(position.file)}, `source_pos` = {position.pos}, "
        f"`gtid_set` = {quote_text(position.gtid_set)}, `source_server` = {quote_text(position.server)}, "
        f"`commit_time` = {item.commit_time!r} "
        f"WHERE `task` = {quote_text(who.task)} AND `source` = {quote_text(who.source)} AND `lane` = {item.lane} "
        f"AND `epoch` = {item.epoch} AND `seq` = {item.seq - 1}"
    ).encode()
