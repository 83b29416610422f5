"""What a rehearsal takes and answers; its statement as each shard table's source would give it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from proto import errors
from proto.errors import ShardmergeError
from proto.lexer import tokens
from worker.ddl.creation import Creation
from worker.ddl.plan import Alter, Scene, Shard, decide
from worker.ddl.rewrite import form_of, renamed
from worker.ddl.session import StatementSession
from worker.ddl.shape import Changing, placed
from worker.ddl.statement import parse_ddl
from worker.ddl.tables import TableName
from worker.ddl.tracker import Tracked
from worker.ddl.words import NotUnderstoodError, Words
from worker.plan import TablePlan, TargetTable
from worker.position import RelayOffset, SourcePosition
from worker.relay.model import Statement

_NOWHERE = RelayOffset(0, 0)
_PLACE = SourcePosition("rehearsal", 0)
_BARE = "?"  # no server takes it for a schema's name unquoted


@dataclass(frozen=True, slots=True)
class Waits:
    """What a shard table waits before. ``ddl``: of ``statement``; ``text``: as merged tables get it; ``given``: its
    session; ``tracked``: the table behind it. ``since``: orders who came first. ``why``: why its target could not take
    it at once (optimistic); ``contradicts``: and only an operator lets it go on."""

    statement: Statement
    ddl: Changing
    text: str
    given: StatementSession
    tracked: Tracked
    since: float
    why: str = ""
    contradicts: bool = False

    @property
    def form(self) -> str:
        """Equal for equal statements, of whichever table."""
        again = parse_ddl(self.text, self.statement.schema, self.statement.sql_mode)
        return form_of(self.text, self.statement.sql_mode, again if again is not None else self.ddl)

    def on(self, target: TargetTable) -> str:
        """The statement for another table."""
        return placed(self.text, self.statement, target)


Outcome = Literal["at-once", "nothing", "waits", "stops"]


@dataclass(frozen=True, slots=True)
class ShardTable:
    """A shard table as it is recorded, or would be. ``creation``: None when it is not recorded. ``waits``: before which
    statement; ``is_held``: it is recorded as waiting, or has just been let go."""

    plan: TablePlan
    creation: Creation | None
    dropped: frozenset[str]
    is_mariadb: bool
    waits: Waits | None = None
    is_held: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """For one shard table. ``statement``: as it runs at the target, at once or when all have come; "" for none.
    ``owner``: the source that runs it then. ``missing``: who has not come. ``error``: why the task would stop."""

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
    """One that stands nowhere in a binlog."""
    return Statement(_NOWHERE, _NOWHERE, _NOWHERE, _PLACE, schema, text, sql_mode)


def asked_tables(text: str, given: Iterable[str]) -> tuple[TableName, ...]:
    """The shard tables that a rehearsal of ``text`` is about: ``given`` ones, else the statement's own.

    Raises PREVIEW_STATEMENT for what is no ALTER TABLE, CREATE INDEX or DROP INDEX, and PREVIEW_BARE_TABLE for a name
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
    words = Words(tokens(text), _BARE)
    try:
        found = words.table()
    except NotUnderstoodError:
        raise errors.ddl.PREVIEW_BARE_TABLE(table=text) from None
    if found.schema == _BARE or not words.at_end:
        raise errors.ddl.PREVIEW_BARE_TABLE(table=text)
    return found.schema, found.table


def given_at(text: str, plan: TablePlan) -> tuple[Statement, Changing]:
    """The statement as it would be given for ``plan``'s table at its source. Raises PREVIEW_STATEMENT."""
    names = plan.table.schema, plan.table.name
    ddl = parse_ddl(text, names[0], 0)
    if isinstance(ddl, Changing):
        own = ddl.table.name
        text = renamed(text, ddl, lambda schema, table: names if (schema, table) == own else None)
        ddl = parse_ddl(text, names[0], 0)
    if not isinstance(ddl, Changing):
        raise errors.ddl.PREVIEW_STATEMENT(statement=" ".join(text.split()))
    return statement_of(text, names[0], 0), ddl


def alters(task: str, plan: TablePlan, statement: Statement, ddl: Changing, routed: Callable[[str, str], bool]) -> bool:
    """Whether the structure of ``plan``'s table changes, and not its name alone. ``routed``: whether its source's rules
    let a (schema, table) through. Raises MOVES_ROWS, RENAME_LEAVES."""
    shard = Shard(plan, 1)
    scene = Scene(task, plan.source, {shard.name: shard}, routed, lambda schema, table: True)
    return any(isinstance(action, Alter) for action in decide(ddl, statement, scene))
