"""What a statement of the binlog means for a stream: on tokens, by the names in it. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.datasource.plan.read_plan import ReadSource
from shardmerge.worker.datasource.stream.model.offset import TableName
from shardmerge.worker.ddl.sql.statement_scope import classify
from shardmerge.worker.relay.model import Statement

_SHOWN_CHARACTERS = 400
_TRUNCATE = re.compile(r"\s*TRUNCATE\b", re.IGNORECASE)

IsWanted = Callable[[str, str], bool]
"""Whether the rules send the table (schema, name) to the merged table."""


@dataclass(frozen=True, slots=True)
class ChangesTables:
    """The statement may change the structures of these tables of the stream, or which there are. Names as written."""

    tables: tuple[TableName, ...]


@dataclass(frozen=True, slots=True)
class ChangesRows:
    """The statement may change rows, which the binlog does not have."""


Meaning = ChangesTables | ChangesRows | None
"""None: the statement does not concern the stream."""


def meaning_of(statement: Statement, is_wanted: IsWanted, known: Iterable[TableName]) -> Meaning:
    """``known``: the tables that the stream has at the statement."""
    scope = classify(statement.text, statement.schema, statement.sql_mode)
    match scope.kind:
        case "ignored":
            return None
        case "unknown":
            return ChangesRows()
        case "dml":
            return ChangesRows() if any(is_wanted_in_any_case(is_wanted, *name) for name in scope.tables) else None
        case "ddl":
            schemas = {schema.lower() for schema in scope.schemas}
            named = [name for name in scope.tables if is_wanted_in_any_case(is_wanted, *name)]
            dropped = sorted(name for name in known if name[0].lower() in schemas)
            tables = tuple(dict.fromkeys((*named, *dropped)))
            return ChangesTables(tables) if tables else None


def is_wanted_in_any_case(is_wanted: IsWanted, schema: str, table: str) -> bool:
    """Also in lower case: with lower_case_table_names=1 statements have the names as typed, tables do not."""
    return is_wanted(schema, table) or is_wanted(schema.lower(), table.lower())


def wanted_by(source: ReadSource, target: TargetTable) -> IsWanted:
    return lambda schema, table: source.sends_to(target, schema, table)


def same_name(one: TableName, other: TableName) -> bool:
    """Whether two names may be those of one table."""
    return (one[0].lower(), one[1].lower()) == (other[0].lower(), other[1].lower())


def keeps_structure(statement: Statement) -> bool:
    """Whether the tables that the statement changes have the same columns before it as after it: TRUNCATE. False if
    that is not certain."""
    return _TRUNCATE.match(statement.text) is not None


def shown(statement: Statement) -> str:
    """The statement for a message."""
    text = " ".join(statement.text.split())
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"
