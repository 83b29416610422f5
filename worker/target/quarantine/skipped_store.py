"""Stores the rows that were skipped by an operator's override.

    skipped_change   one row per row (or a lane's side of one) that was not applied, and the command that skipped it

Written in the transaction in which the lane skips the row, so each row is recorded exactly once. Only `binlog list`
reads it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from shardmerge.proto import worker_pb2 as pb
from shardmerge.worker.core.mysql.connection import Session, quote_name, quote_text
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.target.quarantine.skipped_events import SkippedRow

NAME = "skipped_change"

BY_SKIP = "binlog skip"

_LISTED = 1000
_SHOWN_CHARACTERS = 2000
_STATEMENT_CHARACTERS = 1 << 19


def insert_statements(who: SubtaskKey, lane: int, rows: Sequence[SkippedRow], word: str = BY_SKIP) -> Iterator[bytes]:
    """The INSERTs of these records, for the lane's transaction. ``word``: the command that skipped the rows."""
    schema, task, source = who
    head = f"INSERT INTO {quote_name(schema)}.`{NAME}` VALUES "
    part: list[str] = []
    size = 0
    for number, row in enumerate(rows):
        plan = row.plan
        texts = (
            plan.table.schema,
            plan.table.name,
            plan.target_schema,
            plan.target_table,
            row.operation,
            row.before,
            row.after,
            row.note,
            word,
        )
        values = (
            quote_text(task),
            quote_text(source),
            quote_text(row.position.file),
            str(row.position.pos),
            str(lane),
            str(number),
            *map(quote_text, texts),
            repr(time.time()),
        )
        part.append(f"({', '.join(values)})")
        size += len(part[-1])
        if size > _STATEMENT_CHARACTERS:
            yield (head + ", ".join(part)).encode()
            part, size = [], 0
    if part:
        yield (head + ", ".join(part)).encode()


def read(session: Session, who: SubtaskKey, place: tuple[str, int] | None) -> pb.WorkerSkippedResponse:
    """The oldest records, of one ``place`` (file, end) or of all, with long images cut, and the total number."""
    schema, task, source = who
    of_place = "AND `source_file` = %s AND `source_pos` = %s" if place is not None else ""
    where = f"FROM {quote_name(schema)}.`{NAME}` WHERE `task` = %s AND `source` = %s {of_place}"
    given: Iterable[object] = (task, source, *(place or ()))
    with session.cursor() as cursor:
        cursor.execute(f"SELECT COUNT(*) {where}", tuple(given))
        [(total,)] = cursor.fetchall()
        cursor.execute(
            "SELECT `source_file`, `source_pos`, `table_schema`, `table_name`, `target_schema`, `target_table`, "
            f"`operation`, LEFT(`before_image`, {_SHOWN_CHARACTERS}), LEFT(`after_image`, {_SHOWN_CHARACTERS}), "
            f"`note`, `word`, `skipped_at` {where} "
            f"ORDER BY `skipped_at`, `source_pos`, `lane`, `number` LIMIT {_LISTED}",
            tuple(given),
        )
        rows = cursor.fetchall()
    return pb.WorkerSkippedResponse(
        total=int(total),
        changes=[
            pb.SkippedChange(
                source=source,
                binlog_pos=f"{file}:{pos}",
                source_table=f"{table_schema}.{table}",
                target_table=f"{target_schema}.{target}",
                operation=str(operation),
                before=str(before),
                after=str(after),
                note=str(note),
                word=str(word),
                skipped_at=float(at),
            )
            for file, pos, table_schema, table, target_schema, target, operation, before, after, note, word, at in rows
        ],
    )
