"""Records shard tables whose history is copied in part: a statement on the table interrupted the copy.

    snapshot_interrupted   one row per such table: the statement up to which its copied chunks are valid

Written when a snapshot ends, in the transaction in which the table's stream begins, or by the copy of the rest
(worker/replicate/join/rest_of_copy.py); deleted when all chunks of the table are copied, or when the table is dropped.
While the row exists, the lanes apply only rows of the copied chunks, and the table leaves its stream at the statement.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, TypeAdapter

from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table import Column
from shardmerge.worker.target.records import subtask_rows
from shardmerge.worker.target.records.ddl_progress import StatementPlace

NAME = "snapshot_interrupted"


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """The part of a column's definition that determines the order of its values."""

    type_text: Annotated[str, Field(alias="type")]
    collation: str

    @staticmethod
    def of(column: Column) -> KeyColumn:
        return KeyColumn(column.type_text, column.collation)


@dataclass(frozen=True, slots=True)
class InterruptedCopy:
    """``number``: counts the interruptions of this table's copy, from 1. ``place``: the statement. ``key``: the columns
    by which the recorded chunks are bounded."""

    number: int
    place: StatementPlace
    key: tuple[KeyColumn, ...]

    def to_json(self) -> str:
        return _JSON.dump_json(self, by_alias=True).decode()


_JSON = TypeAdapter(InterruptedCopy)


def read(session: Session, who: SubtaskKey, numbers: Collection[int] | None = None) -> dict[int, InterruptedCopy]:
    """The interrupted copies by the shard table's number, of ``numbers`` (None: of all)."""
    if numbers is not None and not numbers:
        return {}
    more, values = ("", ()) if numbers is None else ("AND `shard` IN %s", (tuple(numbers),))
    found = subtask_rows.select(session, who, NAME, "`shard`, `interrupted`", more, values)
    return {int(number): _JSON.validate_json(str(text)) for number, text in found}


def write(session: Session, who: SubtaskKey, copies: Mapping[int, InterruptedCopy]) -> None:
    """Inside the caller's transaction."""
    subtask_rows.replace(session, who, NAME, [(number, item.to_json()) for number, item in sorted(copies.items())])


def delete(session: Session, who: SubtaskKey, numbers: Iterable[int]) -> None:
    """Inside the caller's transaction."""
    _delete(session, who, (NAME,), numbers)


def forget(session: Session, who: SubtaskKey, numbers: Iterable[int]) -> None:
    """Delete these interrupted copies with all records of what was copied: nothing waits for the rest. Inside the
    caller's transaction."""
    _delete(session, who, (NAME, "snapshot_chunk", "snapshot_table", "snapshot_passed"), numbers)


def _delete(session: Session, who: SubtaskKey, tables: Iterable[str], numbers: Iterable[int]) -> None:
    if ended := tuple(sorted(numbers)):
        for table in tables:
            subtask_rows.delete(session, who, table, "AND `shard` IN %s", (ended,))
