"""Shard tables that wait before a sharding DDL: the records at the target.

    parked_table   one row per waiting shard table: before which statement, and where its rows go on behind it

Written in the transaction with which its stream passes the statement without it; gone in the one with which its own
stream begins behind it (worker/join/). Between the two no lane applies a row of it (I5).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import TypeAdapter

from worker.connection import Session, quote_name
from worker.ddl.records import StatementPlace
from worker.ddl.session import StatementSession
from worker.position import SourcePosition

TABLE = """CREATE TABLE IF NOT EXISTS {schema}.`parked_table` (
        `task` VARCHAR(191) NOT NULL,
        `source` VARCHAR(64) NOT NULL,
        `number` INT NOT NULL,
        `parked` LONGTEXT NOT NULL,
        PRIMARY KEY (`task`, `source`, `number`)
    ) DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin"""
NAME = "parked_table"


@dataclass(frozen=True, slots=True)
class Parked:
    """A shard table, by its number, that waits before a statement.

    ``text``, ``schema``, ``sql_mode``: the statement as merged tables get it, with the shard table's name, its default
    schema and the server's bits; ``is_mariadb``: of the source; ``given``: its session.
    ``place``: where it is; ``behind``: the end of its event group, from where on the table's rows wait. ``since``: Unix
    seconds. ``why``: the reason why its target could not take it at once (optimistic); ``contradicts``: and no coming
    of the others makes it right. ``released``: the statement lies behind it; its rows may be applied, with the
    structure recorded by then.
    """

    number: int
    text: str
    schema: str
    sql_mode: int
    is_mariadb: bool
    given: StatementSession
    place: StatementPlace
    behind: SourcePosition
    since: float
    why: str = ""
    contradicts: bool = False
    released: bool = False

    def to_json(self) -> str:
        return _JSON.dump_json(self).decode()


_JSON = TypeAdapter(Parked)


def read(session: Session, schema: str, task: str, source: str) -> dict[int, Parked]:
    """By the shard table's number."""
    with session.cursor() as cursor:
        cursor.execute(
            f"SELECT `number`, `parked` FROM {quote_name(schema)}.`parked_table` WHERE `task` = %s AND `source` = %s",
            (task, source),
        )
        return {int(number): _JSON.validate_json(str(text)) for number, text in cursor.fetchall()}


def write(session: Session, schema: str, task: str, source: str, parked: Mapping[int, Parked]) -> None:
    """Inside the caller's transaction."""
    with session.cursor() as cursor:
        for number, item in parked.items():
            cursor.execute(
                f"REPLACE INTO {quote_name(schema)}.`parked_table` VALUES (%s, %s, %s, %s)",
                (task, source, number, item.to_json()),
            )


def forget(session: Session, schema: str, task: str, source: str, numbers: Iterable[int]) -> None:
    """Inside the caller's transaction."""
    with session.cursor() as cursor:
        for number in numbers:
            cursor.execute(
                f"DELETE FROM {quote_name(schema)}.`parked_table` "
                "WHERE `task` = %s AND `source` = %s AND `number` = %s",
                (task, source, number),
            )
