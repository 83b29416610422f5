"""The subtask's row and its tables' structures, in the meta schema at the target (default dm_meta).

    subtask           one row per (task, source): newest epoch, phase, where replication began
    table_structure   the structures that the rules let through, from the subtask's first start or from a table join

Rows and the record of them commit in one target transaction, so the records are at the target. The other tables of the
meta schema are in worker/target/records/schema.py; worker/target/RECORDS.md describes all of them.

A unit takes over by raising ``subtask.epoch``; every commit below checks the epoch in its own
transaction, so a process of an older epoch cannot commit (I3). :func:`take_over` has the argument.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import pymysql
from pydantic import TypeAdapter
from pymysql.constants import ER

from shardmerge.proto import errors
from shardmerge.worker.core.mysql.connection import Session, quote_name
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.stream import Stream
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table import Table
from shardmerge.worker.target.records import member_versions, subtask_rows
from shardmerge.worker.target.records.history import rowless_tables
from shardmerge.worker.target.records.schema import OWNED_TABLES

_TABLE_JSON: TypeAdapter[Table] = TypeAdapter(Table)


class Phase(enum.Enum):
    """The phase of a subtask; it only moves forward."""

    NEW = "new"
    SNAPSHOT = "snapshot"
    REPLICATE = "replicate"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class SubTaskRow:
    """The subtask's row as the new owner of the epoch found it.

    ``start``: None before the first start; otherwise the position to which the relay log must reach back while there
    are no lane checkpoints. ``partitioning``: how rows are partitioned to lanes
    (worker/target/records/partitioning.py), "" before it was recorded; it changes together with the checkpoints,
    because the meaning of a checkpoint depends on it. ``joining``: the tables that are joining the subtask
    (worker/target/records/joining_tables.py), "" for none. ``update_token``: of the last update that was begun.
    ``starts_over``: the records are those of an earlier run; :func:`start_over` deletes them. ``removal_begun``: an
    earlier epoch may have removed rows of that run. ``epoch``: the owner's.
    """

    phase: Phase
    start: SourcePosition | None
    partitioning: str
    joining: str
    update_token: str
    starts_over: bool = False
    removal_begun: bool = False
    epoch: int = 0

    @property
    def is_before_copy(self) -> bool:
        """Whether the copy has not begun: its partitioning is recorded before the first chunk."""
        return self.phase is Phase.SNAPSHOT and not self.partitioning


_OF_TABLES = ("table_structure", "table_creation", "rowless_table", "table_version")
"""Tables whose rows number the shard tables, of those that have rows before the copy begins."""

_REMOVING = "-"
"""Before a ``meta_token``: rows of the earlier run may be removed, so that its records must not be continued."""

FORGOTTEN = "forgotten"
"""The ``meta_token`` of a subtask whose records stop-task --remove-meta has removed, until it starts again."""

_TAKE_OVERS = 3
"""How often a run asks for an epoch anew, because another run took over after it had read the recorded epoch."""

_ROW = (
    "`phase`, `start_file`, `start_pos`, `start_gtid_set`, `start_server`, `dealing`, `joining`, `update_token`, "
    "`epoch`"
)


def meta_token_of(recorded: str) -> str:
    """The token of start-task --remove-meta in the column ``meta_token``, whether it was carried out or has begun."""
    return recorded.removeprefix(_REMOVING)


def take_over(connection: Session, who: SubtaskKey, acquire: Callable[[int], int], meta_token: str) -> SubTaskRow:
    """Raise the subtask's epoch to one that ``acquire`` returns; after this commit no older process can commit (I3).

    ``acquire``: confirms that the subtask is this process's, and returns an epoch above the one that it receives, which
    is recorded here. The transaction compares and sets: it raises the epoch only if the one that was received is still
    recorded. So between the confirmation and the take-over no other run has taken over:

    - Of two runs only one raises the same recorded epoch. The other one asks for a confirmation again, and only the one
      to which the source is bound gets it. The last run that was confirmed is therefore the last one that takes over.
    - The epoch grows with each take-over, and no two runs have the same one. All writes of a run have the condition
      that its epoch is recorded. So at each moment one run at most can write, and a run that lives on after another one
      has taken over writes nothing.
    - None of this rests on etcd's revisions. After a loss of etcd's data (worker/daemon/registration.py) a run that was
      confirmed before the loss may have a higher epoch than those that etcd now gives. If it has taken over, the next
      run is above it. If it has not, and another run has meanwhile, the recorded epoch is another one, and etcd no
      longer confirms it.

    A ``meta_token`` other than the recorded one (start-task --remove-meta) makes the subtask start over: until
    :func:`start_over`, every run finds ``starts_over``, also one without a token. Raises FENCED when other runs take
    over again and again, and what ``acquire`` raises.
    """
    # Before the epoch: once etcd names this server as the one with the records, a missing row is one that was lost.
    _create_row(connection, who, meta_token)
    epoch = 0
    for _ in range(_TAKE_OVERS):
        found = _read_epoch(connection, who)
        epoch = acquire(found)
        if epoch <= found:
            break
        row = _raise_epoch(connection, who, found, epoch, meta_token)
        if row is not None:
            return row
    raise errors.replicate.FENCED(task=who.task, source=who.source, epoch=epoch)


def read_highest_epoch(connection: Session, schema: str, task: str) -> int:
    """The highest recorded epoch of all of the task's sources; 0: there is none."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT MAX(`epoch`) FROM {quote_name(schema)}.`subtask` WHERE `task` = %s", (task,))
        [(found,)] = cursor.fetchall()
    return int(found or 0)


def _create_row(connection: Session, who: SubtaskKey, meta_token: str) -> None:
    """Create the row where it is missing, in a transaction of its own."""
    with connection.cursor() as cursor:
        cursor.execute("START TRANSACTION")
        cursor.execute(
            f"INSERT IGNORE INTO {quote_name(who.schema)}.`subtask` "
            "VALUES (%s, %s, 0, 'new', %s, '', 0, '', '', '', '', '')",
            (who.task, who.source, meta_token),
        )
        cursor.execute("COMMIT")


def _read_epoch(connection: Session, who: SubtaskKey) -> int:
    row = read_row(connection, who)
    return 0 if row is None else row.epoch


def _raise_epoch(connection: Session, who: SubtaskKey, expected: int, epoch: int, meta_token: str) -> SubTaskRow | None:
    """Raise the epoch in one transaction; None: another one than ``expected`` is recorded."""
    name = quote_name(who.schema)
    of_subtask = (who.task, who.source)
    with connection.cursor() as cursor:
        cursor.execute("START TRANSACTION")
        cursor.execute(
            f"SELECT `meta_token`, {_ROW} FROM {name}.`subtask` WHERE `task` = %s AND `source` = %s FOR UPDATE",
            of_subtask,
        )
        locked = cursor.fetchone()
        if locked is None:  # dropped since it was read
            cursor.execute("ROLLBACK")
            return None
        (found_token, *recorded) = locked
        row = _row(recorded)
        if row.epoch != expected:
            cursor.execute("ROLLBACK")
            return None
        row = replace(row, epoch=epoch)
        found_token = str(found_token)
        begun = found_token.startswith(_REMOVING)
        if _starts_over(found_token, meta_token):
            row = replace(row, starts_over=True, removal_begun=begun)
            cursor.execute(
                f"UPDATE {name}.`subtask` SET `meta_token` = %s WHERE `task` = %s AND `source` = %s",
                (_REMOVING + (meta_token or found_token.removeprefix(_REMOVING)), *of_subtask),
            )
        cursor.execute(
            f"UPDATE {name}.`subtask` SET `epoch` = %s, `meta_token` = IF(`meta_token` = %s, '', `meta_token`) "
            "WHERE `task` = %s AND `source` = %s",
            (epoch, FORGOTTEN, *of_subtask),
        )
        member_versions.begin_epoch(connection, who, epoch)
        for stream in Stream:
            cursor.execute(
                f"UPDATE {name}.`{stream.table}` SET `epoch` = %s WHERE `task` = %s AND `source` = %s",
                (epoch, *of_subtask),
            )
        # Those of the epoch before this one: if its owner kept none, they are no longer valid.
        cursor.execute(
            f"UPDATE {name}.`{rowless_tables.NAME}` SET `epoch` = %s "
            "WHERE `task` = %s AND `source` = %s AND `epoch` = %s",
            (epoch, *of_subtask, expected),
        )
        cursor.execute("COMMIT")
    return row


def start_over(connection: Session, who: SubtaskKey, epoch: int, next_epoch: int) -> SubTaskRow:
    """Delete the records of the earlier run, whose rows are removed, and continue with ``next_epoch``, in one
    transaction: a reader that keeps records of an epoch in memory must not mix them with those of the new run. Raises
    FENCED."""
    name = quote_name(who.schema)
    with connection.cursor() as cursor:
        cursor.execute("START TRANSACTION")
        cursor.execute(
            f"SELECT `meta_token` FROM {name}.`subtask` WHERE `task` = %s AND `source` = %s AND `epoch` = %s "
            "FOR UPDATE",
            (who.task, who.source, epoch),
        )
        found = cursor.fetchall()
        if not found:
            cursor.execute("ROLLBACK")
            raise errors.replicate.FENCED(task=who.task, source=who.source, epoch=epoch)
        token = str(found[0][0]).removeprefix(_REMOVING)
        _begin_anew(connection, who, token, next_epoch)
        cursor.execute("COMMIT")
    return SubTaskRow(Phase.NEW, None, "", "", "", epoch=next_epoch)


def has_chunks(connection: Session, who: SubtaskKey) -> bool:
    """Whether a chunk of the subtask is planned. Raises ``pymysql.MySQLError``."""
    try:
        return bool(subtask_rows.select(connection, who, "snapshot_chunk", "1", "LIMIT 1"))
    except pymysql.err.ProgrammingError as error:
        if error.args[0] != ER.NO_SUCH_TABLE:
            raise
        return False


def begin_again(connection: Session, who: SubtaskKey, epoch: int, next_epoch: int) -> SubTaskRow:
    """The copy of the subtask has not begun: return to phase NEW with ``next_epoch``, in one transaction, so that its
    tables are read again. The configured end keeps the place that was found first. A new epoch, as in
    :func:`start_over`. Raises FENCED."""

    def forget(session: Session) -> None:
        for table in _OF_TABLES:
            subtask_rows.delete(session, who, table)
        member_versions.begin_epoch(session, who, next_epoch)

    columns = {"phase": Phase.NEW.value, "start_file": "", "epoch": next_epoch}
    _change(connection, who, epoch, columns, forget)
    return SubTaskRow(Phase.NEW, None, "", "", "", epoch=next_epoch)


def forget_task(connection: Session, schema: str, task: str, epoch: int) -> tuple[str, ...]:
    """Delete the records of all of the task's sources, in one transaction, and return the sources. ``epoch``: newer
    than those of all runs that may still exist. Each source's row stays, with this epoch: an older process cannot take
    over. Raises RECORDS_OF_NEWER_START; rolls back what an exception interrupts."""
    connection.begin()
    try:
        with connection.cursor() as cursor:
            cursor.execute(
                f"SELECT `source`, `epoch` FROM {quote_name(schema)}.`subtask` WHERE `task` = %s "
                "ORDER BY `source` FOR UPDATE",
                (task,),
            )
            found = {str(source): int(its) for source, its in cursor.fetchall()}
        for source, its_epoch in found.items():
            if its_epoch > epoch:
                raise errors.master.RECORDS_OF_NEWER_START(task=task, source=source, found=its_epoch, epoch=epoch)
            _begin_anew(connection, SubtaskKey(schema, task, source), FORGOTTEN, epoch)
        with connection.cursor() as cursor:
            cursor.execute(f"DELETE FROM {quote_name(schema)}.`target_rename` WHERE `task` = %s", (task,))
        connection.commit()
    finally:
        connection.rollback()
    return tuple(found)


def _begin_anew(connection: Session, who: SubtaskKey, token: str, epoch: int) -> None:
    """Delete the records of a subtask, whose row the caller has locked: it is in phase NEW, with ``epoch``."""
    _forget(connection, who)
    with connection.cursor() as cursor:
        cursor.execute(
            f"UPDATE {quote_name(who.schema)}.`subtask` SET `phase` = 'new', `meta_token` = %s, `start_file` = '', "
            "`dealing` = '', `joining` = '', `update_token` = '', `epoch` = %s WHERE `task` = %s AND `source` = %s",
            (token, epoch, who.task, who.source),
        )
    member_versions.begin_epoch(connection, who, epoch)


def _forget(connection: Session, who: SubtaskKey) -> None:
    with connection.cursor() as cursor:  # these belong to the target: the first source that starts over deletes them
        cursor.execute(f"DELETE FROM {quote_name(who.schema)}.`lock_run` WHERE `task` = %s", (who.task,))
    for table in OWNED_TABLES:
        try:
            subtask_rows.delete(connection, who, table)
        except pymysql.err.ProgrammingError as error:
            if error.args[0] != ER.NO_SUCH_TABLE:
                raise


def begin(
    connection: Session,
    who: SubtaskKey,
    epoch: int,
    phase: Phase,
    start: SourcePosition,
    tables: tuple[Table, ...],
    also: Callable[[Session], None],
) -> None:
    """Leave phase NEW: record where the relay must begin, the structures, and what ``also`` writes, in one
    transaction. Raises FENCED."""
    columns = {
        "phase": phase.value,
        "start_file": start.file,
        "start_pos": start.pos,
        "start_gtid_set": start.gtid_set,
        "start_server": start.server,
    }

    def add(session: Session) -> None:
        for number, table in enumerate(tables):
            _insert_table(session, who, number, table)
        member_versions.touch(session, who, range(len(tables)))
        also(session)

    _change(connection, who, epoch, columns, add)


def enter_phase(
    connection: Session,
    who: SubtaskKey,
    epoch: int,
    phase: Phase,
    also: Callable[[Session], None],
) -> None:
    """Move to ``phase`` and write what ``also`` writes, in one transaction. Raises FENCED."""
    _change(connection, who, epoch, {"phase": phase.value}, also)


def record_repartition(
    connection: Session,
    who: SubtaskKey,
    epoch: int,
    partitioning: str,
    also: Callable[[Session], None],
) -> None:
    """Record a new partitioning of the lanes and write what ``also`` writes, in one transaction. Raises FENCED."""
    _change(connection, who, epoch, {"dealing": partitioning}, also)


def begin_update(
    connection: Session,
    who: SubtaskKey,
    epoch: int,
    update_token: str,
    joining: str,
    tables: Mapping[int, Table],
    also: Callable[[Session], None],
) -> None:
    """Record that an update has begun, which tables join by it, their structures by number, and what ``also`` writes,
    in one transaction. Raises FENCED."""

    def add(session: Session) -> None:
        for number, table in tables.items():
            _insert_table(session, who, number, table)
        member_versions.touch(session, who, tables)
        also(session)

    _change(connection, who, epoch, {"update_token": update_token, "joining": joining}, add)


def record_joining(
    connection: Session,
    who: SubtaskKey,
    epoch: int,
    joining: str,
    also: Callable[[Session], None],
) -> None:
    """Record which tables are joining and write what ``also`` writes, in one transaction. Raises FENCED."""
    _change(connection, who, epoch, {"joining": joining}, also)


def adopt_joined(
    connection: Session,
    who: SubtaskKey,
    epoch: int,
    partitioning: str,
    also: Callable[[Session], None],
) -> None:
    """The joining tables become the subtask's own: record the new partitioning and write what ``also`` writes, in one
    transaction. Raises FENCED."""
    _change(connection, who, epoch, {"dealing": partitioning, "joining": ""}, also)


def record_statement(
    connection: Session,
    who: SubtaskKey,
    epoch: int,
    columns: Mapping[str, str],
    tables: Mapping[int, Table],
    also: Callable[[Session], None],
) -> None:
    """A stream has executed a statement: record the structures after it by number, the partitioning after it
    (``columns`` of the subtask's row) and what ``also`` writes, in one transaction. Raises FENCED."""

    def write(session: Session) -> None:
        for number, table in tables.items():
            _insert_table(session, who, number, table, verb="REPLACE")
        member_versions.touch(session, who, tables)
        also(session)

    _change(connection, who, epoch, {**columns, "epoch": str(epoch)}, write)


def _change(
    connection: Session,
    who: SubtaskKey,
    epoch: int,
    columns: Mapping[str, str | int],
    also: Callable[[Session], None],
) -> None:
    """Set columns of the subtask's row and write what ``also`` writes, in one transaction. Raises FENCED."""
    assignments = ", ".join(f"`{name}` = %s" for name in columns)
    with connection.cursor() as cursor:
        cursor.execute("START TRANSACTION")
        cursor.execute(
            f"UPDATE {quote_name(who.schema)}.`subtask` SET {assignments} "
            "WHERE `task` = %s AND `source` = %s AND `epoch` = %s",
            (*columns.values(), who.task, who.source, epoch),
        )
        if cursor.rowcount != 1:
            cursor.execute("ROLLBACK")
            raise errors.replicate.FENCED(task=who.task, source=who.source, epoch=epoch)
        also(connection)
        cursor.execute("COMMIT")


def _insert_table(connection: Session, who: SubtaskKey, number: int, table: Table, verb: str = "INSERT") -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            f"{verb} INTO {quote_name(who.schema)}.`table_structure` VALUES (%s, %s, %s, %s, %s, %s)",
            (who.task, who.source, number, table.schema, table.name, _TABLE_JSON.dump_json(table).decode()),
        )


def find_row(connection: Session, who: SubtaskKey) -> SubTaskRow | None:
    """As :func:`read_row`; None also without the table and without the schema."""
    try:
        return read_row(connection, who)
    except pymysql.MySQLError as error:
        if error.args[0] not in (ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR):
            raise
        return None


def is_start_over(connection: Session, who: SubtaskKey, meta_token: str) -> bool:
    """Whether a run with this token makes the subtask, which has a row, start over."""
    [(recorded,)] = subtask_rows.select(connection, who, "subtask", "`meta_token`")
    return _starts_over(str(recorded), meta_token)


def _starts_over(recorded: str, meta_token: str) -> bool:
    return recorded.startswith(_REMOVING) or bool(meta_token and meta_token != recorded)


def read_row(connection: Session, who: SubtaskKey) -> SubTaskRow | None:
    """The subtask's current row, without taking over; None when there is none."""
    found = subtask_rows.select(connection, who, "subtask", _ROW)
    return _row(found[0]) if found else None


def _row(row: Sequence[object]) -> SubTaskRow:
    phase, file, pos, gtid_set, server, partitioning, joining, updated, epoch = map(str, row)
    start = SourcePosition(file, int(pos), gtid_set, server) if file else None
    return SubTaskRow(Phase(phase), start, partitioning, joining, updated, epoch=int(epoch))


def read_table_records(connection: Session, who: SubtaskKey, numbers: Iterable[int]) -> dict[int, Table]:
    """The recorded structures of these shard tables, by number."""
    wanted = tuple(numbers)
    if not wanted:
        return {}
    more = "AND `number` IN %s"
    found = subtask_rows.select(connection, who, "table_structure", "`number`, `structure`", more, (wanted,))
    return {int(number): _TABLE_JSON.validate_json(text) for number, text in found}


def read_tables(connection: Session, who: SubtaskKey) -> tuple[Table, ...]:
    """The recorded structures, by number. A number that was never recorded has the structure after it: nothing looks it
    up. Two streams that create tables at the same time can leave such a number, if the run ends in between."""
    tables: list[Table] = []
    columns = "`number`, `structure`"
    for number, structure in subtask_rows.select(connection, who, "table_structure", columns, "ORDER BY `number`"):
        table = _TABLE_JSON.validate_json(structure)
        tables += [table] * (int(number) + 1 - len(tables))
    return tuple(tables)
