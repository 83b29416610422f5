"""Re-copying rows that differ, beside running lanes.

A repair is one transaction at the target that first locks the subtask's record and every lane's checkpoint: a lane's
transaction begins by moving its checkpoint, so none is under way and none begins until the repair has ended. The locked
checkpoints say exactly which events the target holds. A key that no event touches from the lowest of them to the end of
the source's read had, at those checkpoints, the value that was read: that is written. So the target is afterwards what
its checkpoints say (I2), whatever the lanes apply next; a key that was touched is left for another attempt.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pymysql
from pymysql.constants import ER

from worker.binlog.literal import RowWriter
from worker.compare.judge import Different, Extra, Finding, Missing, judge
from worker.compare.keys import Key
from worker.compare.sides import Places, SourceSide, TargetSide, Who, read_rows
from worker.compare.tables import ComparedTable, Reads
from worker.connection import Session, quote_name, send
from worker.quarantine.held import held_key_of
from worker.quarantine.store import KnownKeys, read_keys, remove
from worker.replicate.checkpoint import Checkpoint, read_all
from worker.replicate.statements import delete_sql, write_sql
from worker.rows import Literals
from worker.schema import select_written
from worker.trouble import Trouble, errno_of, reason_of, trouble

AT_ONCE = 200
"""So many keys are repaired in one transaction: the lanes wait for its end."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """``done``: keys whose row is right now. ``refused``: why others are not. The rest changed meanwhile."""

    done: frozenset[Literals]
    refused: dict[Literals, str]


def repair(
    keys: Sequence[Key],
    table: ComparedTable,
    reads: Reads,
    source: SourceSide,
    target: TargetSide,
    places: Places,
    who: Who,
) -> Repaired:
    """One attempt for at most AT_ONCE keys. Raises what the sides and ``places`` raise; then nothing was written."""
    with target.coding(), _standing_lanes(target.plain(), who) as lanes:
        low = places.locate(source.low())
        rows = read_rows(_all(source, reads.source_rows(keys)), table, reads, at_source=True)
        images = _images(source, table, reads, keys)
        end = places.locate(source.high())
        if low.relay_id != end.relay_id or any(item.relay_id != end.relay_id for item in lanes):
            raise places.changed()
        touched = places.touched(table.plan, min(low.offset, *(item.offset for item in lanes)), end)
        present = read_rows(_all(target, reads.target_rows(keys)), table, reads, at_source=False)
        ours = {key: found[0] for key, found in rows.items()}
        verdict = judge(keys, ours, present, touched, table.columns)
        known = read_keys(target.plain(), (who.meta_schema, who.task, who.source))
        refused = _write(target.plain(), table, verdict.findings, images, known)
        copied = [item.key for item in verdict.findings if isinstance(item, Missing) and item.key.target not in refused]
        _forget_absent(target.plain(), table, who, known, copied)
    open_keys = {key.target for key in verdict.open}
    done = {key.target for key in keys} - open_keys - refused.keys()
    return Repaired(frozenset(done), refused)


@contextmanager
def _standing_lanes(session: Session, who: Who) -> Generator[tuple[Checkpoint, ...]]:
    """A transaction in which no lane commits; it commits at the end of the block."""
    schema = quote_name(who.meta_schema)
    session.begin()
    try:
        with session.cursor() as cursor:
            # In the order in which a new epoch takes them (worker/meta.py).
            for name in ("subtask", "lane_checkpoint"):
                cursor.execute(
                    f"SELECT 1 FROM {schema}.`{name}` WHERE `task` = %s AND `source` = %s FOR UPDATE",
                    (who.task, who.source),
                )
                cursor.fetchall()
        yield read_all(session, who.meta_schema, who.task, who.source)
        session.commit()
    except BaseException:
        _rollback(session)
        raise


def _rollback(session: Session) -> None:
    try:
        session.rollback()
    except pymysql.MySQLError:
        session.close()  # the server rolls back what a lost connection left


def _images(source: SourceSide, table: ComparedTable, reads: Reads, keys: Sequence[Key]) -> dict[Literals, Literals]:
    """Whole rows as literals, by the target's key."""
    writer = RowWriter(table.plan, table.plan.source)
    listed = select_written(table.plan.columns)
    found: dict[Literals, Literals] = {}
    for statement in reads.source_images(keys, listed):
        for raw in source.rows(statement):
            image = writer.literals(raw)
            found[tuple(image[index] for index in table.plan.key)] = image
    return found


def _all(side: SourceSide | TargetSide, statements: Any) -> Any:
    for statement in statements:
        yield from side.rows(statement)


def _write(
    session: Session,
    table: ComparedTable,
    findings: Sequence[Finding],
    images: dict[Literals, Literals],
    known: KnownKeys,
) -> dict[Literals, str]:
    """Make every finding right; why it could not be done, by key. Rows that are too many go first."""
    refused: dict[Literals, str] = {}
    order = {Extra: 0, Different: 1, Missing: 2}
    for finding in sorted(findings, key=lambda item: order[type(item)]):
        key = finding.key.target
        at = held_key_of(table.plan, b",".join(key))
        if at in known.held:
            refused[key] = "its changes are held in the quarantine"
            continue
        if at in known.absent and not isinstance(finding, Missing):
            refused[key] = "its row was given up, what the target has under its key is another's"
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
        reason = _run_alone(session, statements)
        if reason:
            refused[key] = reason
    return refused


def _forget_absent(session: Session, table: ComparedTable, who: Who, known: KnownKeys, keys: Sequence[Key]) -> None:
    """Rows that were given up and are at the target now."""
    there = {held_key_of(table.plan, b",".join(key.target)) for key in keys}
    remove(session, (who.meta_schema, who.task, who.source), known.absent & there)


def _run_alone(session: Session, statements: Sequence[bytes]) -> str:
    """The statements, each of which must affect one row, or none of them; why not, "" when it was done."""
    send(session, b"SAVEPOINT one_row")
    try:
        for statement in statements:
            affected = send(session, statement)
            if affected != 1:
                send(session, b"ROLLBACK TO SAVEPOINT one_row")
                return f"a statement affected {affected} rows in place of one"
    except pymysql.MySQLError as error:
        number = errno_of(error)
        if number != ER.DUP_ENTRY and trouble(number) is not Trouble.STATEMENT:
            raise
        send(session, b"ROLLBACK TO SAVEPOINT one_row")
        return f"{reason_of(error)} (errno {number})"
    return ""
