"""Records shard tables that are parked at a sharding DDL.

    parked_table   one row per parked shard table: at which statement, and where its rows continue after it

Written in the transaction in which its stream executes the statement without this table; deleted in the transaction in
which the table's own stream begins after the statement (worker/replicate/join/). Between the two no lane applies a row
of the table (I5).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, TypeAdapter

from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.target.records import member_versions, subtask_rows
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.statement_session import StatementSession


@dataclass(frozen=True, slots=True)
class Parked:
    """A shard table, by its number, that is parked at a statement.

    ``text``, ``schema``, ``sql_mode``: the statement for merged tables with the shard table's name, its default schema
    and the server's bits. ``is_mariadb``: whether the source is. ``session``: the statement's session. ``place``: the
    statement. ``resume_at``: the end of its event group, from where on the table's rows wait. ``since``: Unix seconds.
    ``why``: why its target could not take the statement at once (optimistic). ``contradicts``: the statement would not
    fit either after all other shard tables have reached it. ``released``: the lock has released the table; its rows
    may be applied with the structure that was recorded then. ``resumes_copy``: the interruption of its history's copy
    (``number`` of history/interrupted_copies.py) after which the rest is copied before its rows are applied; 0: none.
    Such a table takes part in no lock. ``skips``: the last of the following statements that the recorded structure
    contains already: the table's own stream does not execute them (worker/ddl/locks/way_back.py); None: there are none.
    ``after_run``: generation of the last lock whose statement had run at the target when the table was parked; "" for
    none: that lock does not release it.
    """

    number: int
    text: str
    schema: str
    sql_mode: int
    is_mariadb: bool
    session: Annotated[StatementSession, Field(alias="given")]
    place: StatementPlace
    resume_at: Annotated[SourcePosition, Field(alias="behind")]
    since: float
    why: str = ""
    contradicts: bool = False
    released: bool = False
    resumes_copy: int = 0
    skips: StatementPlace | None = None
    after_run: str = ""

    def to_json(self) -> str:
        return _JSON.dump_json(self, by_alias=True).decode()


_JSON = TypeAdapter(Parked)


def read(session: Session, who: SubtaskKey, numbers: Collection[int] | None = None) -> dict[int, Parked]:
    """Parked tables by the shard table's number, of ``numbers`` (None: of all)."""
    if numbers is not None and not numbers:
        return {}
    more, values = ("", ()) if numbers is None else ("AND `number` IN %s", (tuple(numbers),))
    found = subtask_rows.select(session, who, "parked_table", "`number`, `parked`", more, values)
    return {int(number): _JSON.validate_json(str(text)) for number, text in found}


def write(session: Session, who: SubtaskKey, parked: Mapping[int, Parked]) -> None:
    """Inside the caller's transaction."""
    subtask_rows.replace(session, who, "parked_table", [(number, item.to_json()) for number, item in parked.items()])
    member_versions.touch(session, who, parked)


def delete(session: Session, who: SubtaskKey, numbers: Iterable[int]) -> None:
    """Inside the caller's transaction."""
    ended = frozenset(numbers)
    if ended:
        subtask_rows.delete(session, who, "parked_table", "AND `number` IN %s", (tuple(sorted(ended)),))
    member_versions.touch(session, who, ended)
