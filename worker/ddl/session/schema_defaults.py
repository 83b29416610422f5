"""Finds the default collation that a schema had at a statement: a table without a character set of its own gets it.

Servers do not log it with the statement. It is the schema's present one at the source, unless a statement after this
one has changed it; then it follows from the last statement before this one that has set it. If there is none in the
relay log either, it is not known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.sql_lexer import tokens
from shardmerge.worker.core.mysql.connection import current_position, rows, server_info, text_of
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.ddl.session.collation_names import CharsetDefaults, CollationNames
from shardmerge.worker.ddl.session.written_collations import charset_in, collation_in
from shardmerge.worker.ddl.sql.statement import AlterSchema, CreateSchema, DropSchema, parse_ddl
from shardmerge.worker.ddl.sql.version_comments import Server, expand_version_comments
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.unit.run_context import RunContext

_LOCATE_SECONDS = 60.0
_OF_SCHEMAS = re.compile(r"(?:CREATE|ALTER|DROP)\b.*\b(?:DATABASE|SCHEMA)\b", re.IGNORECASE | re.DOTALL)
"""In each statement that changes a schema, and in few others. It may have comments before it, and be within one."""


@dataclass(frozen=True, slots=True)
class _Change:
    """A statement after which a schema may have another default. ``may_be_void``: CREATE … IF NOT EXISTS."""

    statement: Statement
    ddl: CreateSchema | AlterSchema | DropSchema
    may_be_void: bool


@dataclass(frozen=True, slots=True)
class _Present:
    """The default that the source has shown when the relay log ended at ``head``; "": there is no such schema."""

    collation: str
    head: RelayOffset


@dataclass(slots=True)
class SchemaDefaults:
    """Of one stream, for one thread. Keeps what it has read of the relay log, from ``_read_from`` to ``_read_to``."""

    _relay_id: str = ""
    _read_from: RelayOffset | None = None
    _read_to: RelayOffset | None = None
    _changes: dict[str, list[_Change]] = field(default_factory=dict[str, list[_Change]])
    _present: dict[str, _Present] = field(default_factory=dict[str, _Present])

    def collation(self, context: RunContext, statement: Statement, schema: str, stop: StopSignal) -> str:
        """The default collation of ``schema`` when ``statement`` ran. Raises SCHEMA_DEFAULT_UNKNOWN, LOCATE_TIMEOUT
        and other coded errors of the source and of the relay log."""
        key = schema.lower()
        self._read(context, statement.group_start)
        if (known := self._valid(key, statement)) is not None:
            return known
        failure: ShardmergeError | None = None
        try:
            self._present[key] = self._ask(context, schema, stop)
        except ShardmergeError as error:
            if error.spec is not errors.relay.LOCATE_TIMEOUT:
                raise
            failure = error
        self._read(context, statement.group_start)
        if (known := self._valid(key, statement)) is not None:
            return known
        self._read(context, context.relay.first().offset)
        if (earlier := self._earlier(key, statement, context, stop)) is not None:
            return earlier
        if failure is not None:
            raise failure
        _, task, source = context.who
        raise errors.ddl.SCHEMA_DEFAULT_UNKNOWN(
            source=source,
            task=task,
            position=statement.position,
            schema=schema,
            statement=" ".join(statement.text.split()),
        )

    # --- parts

    def _valid(self, key: str, statement: Statement) -> str | None:
        """What the source has shown, if the schema did not change between that moment and the statement."""
        present = self._present.get(key)
        if present is None or not present.collation:
            return None
        low, high = sorted((statement.offset, present.head))
        changes = self._changes.get(key, ())
        return None if any(low <= each.statement.offset <= high for each in changes) else present.collation

    def _earlier(self, key: str, statement: Statement, context: RunContext, stop: StopSignal) -> str | None:
        """The default by the last statement that has set it."""
        before = [each for each in self._changes.get(key, ()) if each.statement.offset < statement.offset]
        for at in range(len(before) - 1, -1, -1):
            change = before[at]
            if change.may_be_void and not (at and isinstance(before[at - 1].ddl, DropSchema)):
                continue
            return None if isinstance(change.ddl, DropSchema) else _set_by(change, context, stop)
        return None

    def _ask(self, context: RunContext, schema: str, stop: StopSignal) -> _Present:
        with context.at_source(stop) as session:
            found = rows(
                session,
                "SELECT DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = %s",
                (schema,),
            )
            end = current_position(session, server_info(session), gtid=True)
        head = context.relay.locate(end, _LOCATE_SECONDS, stop, down=True)
        return _Present(text_of(found[0][0]) if found else "", head)

    def _read(self, context: RunContext, begin: RelayOffset) -> None:
        """Read the statements from group end ``begin`` on, and those that have been written since the last call."""
        relay = context.relay
        with relay.one_generation() as relay_id:
            if relay_id != self._relay_id or self._read_from is None or begin < self._read_from:
                self._begin(relay_id, begin)
            try:
                self._read_on(context)
            except ShardmergeError as error:
                if error.spec is not errors.relay.OFFSET_PURGED:
                    raise
                # Statements may have been purged before they were read here. The one in question is still there.
                self._begin(relay_id, relay.first().offset)
                self._read_on(context)

    def _begin(self, relay_id: str, begin: RelayOffset) -> None:
        if relay_id != self._relay_id or (self._read_from is not None and begin > self._read_from):
            self._present.clear()
        self._relay_id, self._read_from, self._read_to = relay_id, begin, begin
        self._changes.clear()

    def _read_on(self, context: RunContext) -> None:
        assert self._read_to is not None  # noqa: S101 - for the type checker: it has begun
        for statement in context.relay.statements_from(self._read_to):
            self._add(context, statement)
            self._read_to = statement.group_end

    def _add(self, context: RunContext, statement: Statement) -> None:
        if _OF_SCHEMAS.search(statement.text) is None:
            return
        queried = context.relay.read_query_event(statement)
        server = Server(queried.is_mariadb, queried.version)
        text = expand_version_comments(statement.text, statement.sql_mode or 0, server)
        ddl = parse_ddl(text, statement.schema, statement.sql_mode)
        if not isinstance(ddl, (CreateSchema, AlterSchema, DropSchema)):
            return
        found = tokens(text, statement.sql_mode or 0)
        if isinstance(ddl, AlterSchema) and not charset_in(found) and not collation_in(found):
            return
        is_void = isinstance(ddl, CreateSchema) and any(token.is_word("IF") for token in found)
        change = _Change(replace(statement, text=text), ddl, is_void)
        self._changes.setdefault(ddl.schema.lower(), []).append(change)


def _set_by(change: _Change, context: RunContext, stop: StopSignal) -> str | None:
    """The default that a CREATE DATABASE or ALTER DATABASE has set; None: the server's, which is not known."""
    statement = change.statement
    queried = context.relay.read_query_event(statement)
    names = CollationNames(context, stop)
    found = tokens(statement.text, statement.sql_mode or 0)
    charset, collation = charset_in(found), collation_in(found)
    defaults = CharsetDefaults(queried, names)
    if collation and collation.upper() != "DEFAULT":
        return defaults.named(collation.lower())
    if charset and charset.upper() != "DEFAULT":
        return defaults.of(charset)
    server = queried.event.variables.server
    return None if server is None else names.name(server) or None
