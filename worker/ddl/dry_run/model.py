"""Input and result of a dry run, and the statement as each shard table's source would log it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.sql_lexer import tokens
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.sql.token_reader import NotUnderstoodError, TokenReader
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.ddl.decide.actions import Alter, DdlContext, ShardTarget, actions_of
from shardmerge.worker.ddl.sql.rewrite import rename_tables, unordered_form
from shardmerge.worker.ddl.sql.statement import parse_ddl
from shardmerge.worker.ddl.sql.target_statement import Changing, for_table
from shardmerge.worker.ddl.structure.schema_tracker import Tracked
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.rules.table_scope import TableName
from shardmerge.worker.target.records.statement_session import StatementSession

_NOWHERE = RelayOffset(0, 0)
_PLACE = SourcePosition("rehearsal", 0)
_BARE = "?"  # no server accepts this as an unquoted schema name


@dataclass(frozen=True, slots=True)
class SimulatedWait:
    """The statement at which a shard table would be parked. ``ddl``: the parsed ``statement``. ``text``: its form for
    merged tables. ``session``: its session settings. ``tracked``: the table after it. ``since``: the order in which
    they were parked. ``why``: why the target could not take it at once (optimistic). ``contradicts``: only an operator
    can release it."""

    statement: Statement
    ddl: Changing
    text: str
    session: StatementSession
    tracked: Tracked
    since: float
    why: str = ""
    contradicts: bool = False

    @property
    def form(self) -> str:
        """Equal for equal statements, independent of the table."""
        again = parse_ddl(self.text, self.statement.schema, self.statement.sql_mode)
        return unordered_form(self.text, self.statement.sql_mode, again if again is not None else self.ddl)

    def on(self, target: TargetTable) -> str:
        """The statement for another table."""
        return for_table(self.text, self.statement, target)


Outcome = Literal["at-once", "nothing", "waits", "stops"]


@dataclass(frozen=True, slots=True)
class ShardTable:
    """A shard table as recorded, or as it would be recorded. ``creation``: None when it is not recorded. ``waits``: the
    statement at which it is parked."""

    plan: TablePlan
    creation: CreateStatement | None
    dropped: frozenset[str]
    is_mariadb: bool
    waits: SimulatedWait | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The result for one shard table. ``statement``: as it runs at the target, at once or when all shard tables have
    reached it; "" for none. ``owner``: the source that runs it then. ``missing``: shard tables that have not reached
    it. ``error``: why the task would stop."""

    plan: TablePlan
    outcome: Outcome
    statement: str = ""
    reason: str = ""
    contradicts: bool = False
    owner: str = ""
    missing: tuple[TablePlan, ...] = ()
    risks: tuple[str, ...] = ()
    error: ShardmergeError | None = None


def statement_of(text: str, schema: str, sql_mode: int) -> Statement:
    """A statement that is not in any binlog."""
    return Statement(_NOWHERE, _NOWHERE, _NOWHERE, _PLACE, schema, text, sql_mode)


def tables_in_scope(text: str, given: Iterable[str]) -> tuple[TableName, ...]:
    """The shard tables of a dry run of ``text``: the ``given`` ones, or else the statement's own.

    Raises PREVIEW_STATEMENT unless it is an ALTER TABLE, CREATE INDEX or DROP INDEX, and PREVIEW_BARE_TABLE for a name
    without its schema.
    """
    ddl = parse_ddl(text, _BARE, 0)
    if not isinstance(ddl, Changing):
        raise errors.ddl.PREVIEW_STATEMENT(statement=" ".join(text.split()))
    named = tuple(dict.fromkeys(map(_named, given)))
    if named:
        return named
    own = ddl.table
    if own.schema == _BARE:
        raise errors.ddl.PREVIEW_BARE_TABLE(table=own.table)
    return ((own.schema, own.table),)


def _named(text: str) -> TableName:
    words = TokenReader(tokens(text), _BARE)
    try:
        found = words.table()
    except NotUnderstoodError:
        raise errors.ddl.PREVIEW_BARE_TABLE(table=text) from None
    if found.schema == _BARE or not words.at_end:
        raise errors.ddl.PREVIEW_BARE_TABLE(table=text)
    return found.schema, found.table


def statement_for(text: str, plan: TablePlan) -> tuple[Statement, Changing]:
    """The statement for ``plan``'s table, as its source would log it. Raises PREVIEW_STATEMENT."""
    names = plan.table.schema, plan.table.name
    ddl = parse_ddl(text, names[0], 0)
    if isinstance(ddl, Changing):
        own = ddl.table.name
        text = rename_tables(text, ddl, lambda schema, table: names if (schema, table) == own else None)
        ddl = parse_ddl(text, names[0], 0)
    if not isinstance(ddl, Changing):
        raise errors.ddl.PREVIEW_STATEMENT(statement=" ".join(text.split()))
    return statement_of(text, names[0], 0), ddl


def changes_structure(
    task: str, plan: TablePlan, statement: Statement, ddl: Changing, routed: Callable[[str, str], bool]
) -> bool:
    """Whether the statement changes the structure of ``plan``'s table, not only its name. ``routed``: whether the
    source's rules let a (schema, table) through. Raises MOVES_ROWS, RENAME_LEAVES."""
    shard = ShardTarget(plan, 1)
    scene = DdlContext(task, plan.source, {shard.name: shard}, routed, lambda schema, table: True)
    return any(isinstance(action, Alter) for action in actions_of(ddl, statement, scene))
