"""Re-copies rows that differ while the lanes run.

A repair is one transaction at the target that first locks the subtask's record and every lane's checkpoint. A lane's
transaction begins by moving its checkpoint, so none is in progress and none begins until the repair has ended. The
locked checkpoints define exactly which events the target holds. A key that no event touches from the lowest of them to
the end of the source's read had, at those checkpoints, the value that was read: that value is written. So the target
afterwards agrees with its checkpoints (I2), whatever the lanes apply next. A touched key is left for another attempt.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pymysql
from pymysql.constants import ER

from shardmerge.worker.binlog.rows.row_literals import RowWriter
from shardmerge.worker.core.mysql.connection import Session, quote_name, send
from shardmerge.worker.core.mysql.information_schema import select_written
from shardmerge.worker.core.mysql.server_errors import ErrorKind, errno_of, kind_of, reason_of
from shardmerge.worker.core.row_change import Literals
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.target.apply.dml import delete_sql, write_sql
from shardmerge.worker.target.quarantine.held_changes import held_key_of
from shardmerge.worker.target.quarantine.held_store import KnownKeys, read_keys, remove
from shardmerge.worker.target.records.checkpoint import Checkpoint, read_all
from shardmerge.worker.target.records.history import rowless_tables
from shardmerge.worker.target.tables.row_ownership import NotSeparable
from shardmerge.worker.verify.compare.compared_tables import ComparedTable, TableQueries
from shardmerge.worker.verify.compare.judge import Different, Extra, Finding, Missing, diff_rows
from shardmerge.worker.verify.compare.keys import RowKey
from shardmerge.worker.verify.compare.sides import RelayPlaces, SourceSide, TargetSide, read_rows

KEYS_PER_TRANSACTION = 200
"""How many keys are repaired in one transaction; the lanes wait for its end."""


@dataclass(frozen=True, slots=True)
class RepairResult:
    """``done``: keys whose row is correct. ``refused``: keys that were not repaired, with the reason. All others
    changed meanwhile."""

    done: frozenset[Literals]
    refused: dict[Literals, str]


def repair(
    keys: Sequence[RowKey],
    table: ComparedTable,
    reads: TableQueries,
    source: SourceSide,
    target: TargetSide,
    places: RelayPlaces,
    subtask: SubtaskKey,
) -> RepairResult:
    """One attempt for at most KEYS_PER_TRANSACTION keys. Raises what the sides and ``places`` raise; then nothing was
    written."""
    with target.coded_errors(), _lanes_blocked(target.plain(), subtask) as lanes:
        low = places.locate(source.low())
        rows = read_rows(source.rows(*reads.source_rows(keys)), table, reads, at_source=True)
        images = _images(source, table, reads, keys)
        end = places.locate(source.high())
        if low.relay_id != end.relay_id:
            raise places.changed()
        offsets = (places.of_lane(lane, end.relay_id) for lane in lanes)
        touched = places.touched(table.plan, min(low.offset, *offsets), end)
        present = read_rows(target.rows(*reads.target_rows(keys)), table, reads, at_source=False)
        ours = {key: found[0] for key, found in rows.items()}
        verdict = diff_rows(keys, ours, present, touched, table.columns)
        known = read_keys(target.plain(), subtask)
        if any(not isinstance(item, Extra) for item in verdict.findings):
            rowless_tables.forget(target.plain(), subtask, table.plan.shard)
        refused = _write(target.plain(), table, verdict.findings, images, known)
        repaired = [item.key for item in verdict.findings if item.key.target not in refused]
        _forget_absent(target.plain(), table, subtask, known, repaired)
    open_keys = {key.target for key in verdict.still_changing}
    done = {key.target for key in keys} - open_keys - refused.keys()
    return RepairResult(frozenset(done), refused)


@contextmanager
def _lanes_blocked(session: Session, subtask: SubtaskKey) -> Generator[tuple[Checkpoint, ...]]:
    """A transaction during which no lane commits; it commits at the end of the block."""
    schema = quote_name(subtask.schema)
    session.begin()
    try:
        with session.cursor() as cursor:
            # In the order in which a new epoch locks them (worker/target/records/subtask_record.py).
            for name in ("subtask", "lane_checkpoint"):
                cursor.execute(
                    f"SELECT 1 FROM {schema}.`{name}` WHERE `task` = %s AND `source` = %s FOR UPDATE",
                    (subtask.task, subtask.source),
                )
                cursor.fetchall()
        yield read_all(session, subtask)
        session.commit()
    except BaseException:
        _rollback(session)
        raise


def _rollback(session: Session) -> None:
    try:
        session.rollback()
    except pymysql.MySQLError:
        session.close()  # the server rolls back what a lost connection left


def _images(
    source: SourceSide, table: ComparedTable, reads: TableQueries, keys: Sequence[RowKey]
) -> dict[Literals, Literals]:
    """The source's whole rows as literals, by the target's key."""
    writer = RowWriter(table.plan, table.plan.source)
    listed = select_written(table.plan.columns)
    found: dict[Literals, Literals] = {}
    for raw in source.rows(*reads.source_images(keys, listed)):
        image = writer.literals(raw)
        found[tuple(image[index] for index in table.plan.key)] = image
    return found


def _write(
    session: Session,
    table: ComparedTable,
    findings: Sequence[Finding],
    images: dict[Literals, Literals],
    known: KnownKeys,
) -> dict[Literals, str]:
    """Repair every finding; returns, by key, why one could not be repaired. Extra rows are deleted first."""
    refused: dict[Literals, str] = {}
    order = {Extra: 0, Different: 1, Missing: 2}
    for finding in sorted(findings, key=lambda item: order[type(item)]):
        key = finding.key.target
        at = held_key_of(table.plan, b",".join(key))
        if at in known.held:
            refused[key] = "its changes are held in the quarantine"
            continue
        if at in known.absent and not isinstance(finding, Missing) and isinstance(table.owned, NotSeparable):
            refused[key] = "its row was given up, the target's row of this key may belong to another shard table"
            continue
        statements: list[bytes] = []
        if not isinstance(finding, Missing):
            statements.append(delete_sql(table.plan, [b",".join(key)]))
        if not isinstance(finding, Extra):
            image = images.get(key)
            if image is None:
                refused[key] = "it could not be read again"
                continue
            statements.append(write_sql(b"INSERT", table.plan, [b",".join(image)]))
        reason = _run_in_savepoint(session, statements)
        if reason:
            refused[key] = reason
    return refused


def _forget_absent(
    session: Session, table: ComparedTable, subtask: SubtaskKey, known: KnownKeys, keys: Sequence[RowKey]
) -> None:
    """Remove the quarantine's records of rows that were given up. ``keys``: the target agrees with the source now."""
    there = {held_key_of(table.plan, b",".join(key.target)) for key in keys}
    remove(session, subtask, known.absent & there)


def _run_in_savepoint(session: Session, statements: Sequence[bytes]) -> str:
    """Run all statements, each of which must affect one row, or none of them; returns why they failed, or ""."""
    send(session, b"SAVEPOINT one_row")
    try:
        for statement in statements:
            affected = send(session, statement)
            if affected != 1:
                send(session, b"ROLLBACK TO SAVEPOINT one_row")
                return f"a statement affected {affected} rows instead of one"
    except pymysql.MySQLError as error:
        number = errno_of(error)
        if number != ER.DUP_ENTRY and kind_of(number) is not ErrorKind.STATEMENT:
            raise
        send(session, b"ROLLBACK TO SAVEPOINT one_row")
        return f"{reason_of(error)} (errno {number})"
    return ""
