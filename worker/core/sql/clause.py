"""The clauses of ALTER TABLE. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from shardmerge.worker.core.sql.token_reader import NameAt


class ClauseKind(enum.Enum):
    ADD_COLUMN = enum.auto()  # or several, and keys, with ADD (…)
    DROP_COLUMN = enum.auto()
    CHANGE_COLUMN = enum.auto()
    MODIFY_COLUMN = enum.auto()
    RENAME_COLUMN = enum.auto()
    SET_DEFAULT = enum.auto()
    DROP_DEFAULT = enum.auto()
    ADD_INDEX = enum.auto()
    ADD_UNIQUE = enum.auto()
    ADD_PRIMARY_KEY = enum.auto()
    DROP_PRIMARY_KEY = enum.auto()
    DROP_INDEX = enum.auto()
    RENAME_INDEX = enum.auto()
    ALTER_INDEX = enum.auto()
    ADD_FOREIGN_KEY = enum.auto()
    DROP_FOREIGN_KEY = enum.auto()
    ADD_CHECK = enum.auto()
    DROP_CHECK = enum.auto()
    ALTER_CHECK = enum.auto()
    DROP_CONSTRAINT = enum.auto()  # of any kind: the name alone does not show which
    RENAME_TABLE = enum.auto()
    CONVERT_CHARSET = enum.auto()
    OPTION = enum.auto()  # one or more of the table's
    ORDER_BY = enum.auto()
    PARTITIONING = enum.auto()  # adds and removes no rows
    PARTITION_ROWS = enum.auto()  # adds or removes rows without row events
    HOW = enum.auto()  # how it is done, not the result; also ONLINE and WAIT next to the table's name
    SYSTEM_VERSIONING = enum.auto()
    PERIOD = enum.auto()
    OTHER = enum.auto()


LEAVES_ROWS = frozenset(
    {
        ClauseKind.ADD_COLUMN,
        ClauseKind.SET_DEFAULT,
        ClauseKind.DROP_DEFAULT,
        ClauseKind.ADD_INDEX,
        ClauseKind.ADD_UNIQUE,
        ClauseKind.DROP_INDEX,
        ClauseKind.RENAME_INDEX,
        ClauseKind.ALTER_INDEX,
        ClauseKind.HOW,
    }
)
"""Clauses that leave the values of existing columns as they are."""
OF_COLUMNS = frozenset(
    {
        ClauseKind.DROP_COLUMN,
        ClauseKind.CHANGE_COLUMN,
        ClauseKind.MODIFY_COLUMN,
        ClauseKind.RENAME_COLUMN,
        ClauseKind.SET_DEFAULT,
        ClauseKind.DROP_DEFAULT,
    }
)
"""Clauses that name existing columns."""
MOVES = frozenset({ClauseKind.RENAME_TABLE, ClauseKind.PARTITION_ROWS})
"""Clauses whose ``names`` are tables that they create, remove or change; other clauses only refer to tables."""


@dataclass(frozen=True, slots=True)
class Clause:
    """``text[start:end]`` is the clause without commas around it; ``columns``: those it adds, drops or changes.

    ``name``: of an index or constraint that is dropped, changed or renamed, of a CHECK that is added IF NOT EXISTS;
    ``new_name``: of a column or index. ``names``: all tables in it, referenced ones too.
    """

    kind: ClauseKind
    start: int
    end: int
    columns: tuple[str, ...] = ()
    name: str = ""
    new_name: str = ""
    names: tuple[NameAt, ...] = ()
