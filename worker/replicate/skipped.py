"""What was passed over by an operator's word: the record at the target.

    skipped_change   one row per row (or a lane's side of one) that was not applied, and by which word

Written in the transaction with which its lane passes it, so that it is told exactly once; nothing reads it but
`binlog list`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence

from proto import worker_pb2 as pb
from worker.connection import Session, quote_name, quote_text
from worker.replicate.skips import SkippedRow

NAME = "skipped_change"
TABLE = """CREATE TABLE IF NOT EXISTS {schema}.`skipped_change` (
        `task` VARCHAR(191) NOT NULL,
        `source` VARCHAR(64) NOT NULL,
        `source_file` VARCHAR(255) NOT NULL,
        `source_pos` BIGINT UNSIGNED NOT NULL,
        `lane` INT NOT NULL,
        `number` INT NOT NULL,
        `table_schema` VARCHAR(64) NOT NULL,
        `table_name` VARCHAR(64) NOT NULL,
        `target_schema` VARCHAR(64) NOT NULL,
        `target_table` VARCHAR(64) NOT NULL,
        `operation` VARCHAR(16) NOT NULL,
        `before_image` LONGTEXT NOT NULL,
        `after_image` LONGTEXT NOT NULL,
        `note` TEXT NOT NULL,
        `word` VARCHAR(64) NOT NULL,
        `skipped_at` DOUBLE NOT NULL,
        KEY `by_place` (`task`, `source`, `source_pos`)
    ) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""

BY_SKIP = "binlog skip"

_LISTED = 1000
_SHOWN_CHARACTERS = 2000
_STATEMENT_CHARACTERS = 1 << 19


def insert_statements(
    who: tuple[str, str, str], lane: int, rows: Sequence[SkippedRow], word: str = BY_SKIP
) -> Iterator[bytes]:
    """The INSERTs of these records, for the lane's transaction. ``word``: the command by which they were skipped."""
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


def read(session: Session, who: tuple[str, str, str], place: tuple[str, int] | None) -> pb.WorkerSkippedResponse:
    """The oldest records, of one ``place`` (file, end) or of all, with long images cut; and how many there are."""
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
