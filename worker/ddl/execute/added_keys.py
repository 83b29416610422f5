"""Adds the columns that routes extract from names to the unique keys which a DDL adds to a target table.

A key that the statement declares with its column becomes a clause of its own. A key whose last column the statement
drops is dropped with it, as at the source: a server would keep it over the extracted columns alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from shardmerge.proto.sql_lexer import Token, tokens
from shardmerge.worker.core.mysql.connection import Session, quote_name
from shardmerge.worker.core.mysql.show_create import read_create_statement
from shardmerge.worker.core.sql.clause import ClauseKind
from shardmerge.worker.core.sql.table_text import Index, element_kind, lowercase_names, read_create_table, read_index
from shardmerge.worker.core.sql.token_reader import TokenReader, split_at_commas
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.sql.alter_parser import add_list_elements
from shardmerge.worker.ddl.sql.statement import AlterTable, CreateIndex, parse_ddl
from shardmerge.worker.ddl.sql.table_definition import TableDefinition
from shardmerge.worker.target.tables.extracted_keys import NO_EXTENSION, KeyExtension, added_keys, created_keys
from shardmerge.worker.target.tables.target_table import find_target

_KEYS = frozenset({ClauseKind.ADD_UNIQUE, ClauseKind.ADD_PRIMARY_KEY})
_DROP_KEYS = frozenset({ClauseKind.DROP_INDEX, ClauseKind.DROP_CONSTRAINT})
_DEFINE_COLUMNS = frozenset({ClauseKind.ADD_COLUMN, ClauseKind.MODIFY_COLUMN, ClauseKind.CHANGE_COLUMN})


@dataclass(frozen=True, slots=True)
class _Edit:
    """``text[start:end]`` is replaced. ``clause``: a clause that is added to the statement."""

    start: int
    end: int
    text: str = ""
    clause: str = ""


@dataclass(frozen=True, slots=True)
class TargetKeys:
    """``present``: the target's unique keys. ``extension``: for those that a statement adds."""

    extension: KeyExtension = NO_EXTENSION
    present: tuple[Index, ...] = ()

    @staticmethod
    def of(plan: TablePlan, creation: str) -> TargetKeys:
        """``creation``: the CREATE TABLE of the plan's target. Raises UnreadableCreateTable."""
        present = read_create_table(creation).unique_keys
        return TargetKeys(added_keys(plan, [key.columns for key in present]), present)


def target_keys(session: Session, plan: TablePlan) -> TargetKeys:
    """The keys of the target of ``plan``; nothing is read for a target whose keys have no extracted columns. Raises
    ``pymysql.MySQLError``."""
    if not created_keys(plan).columns:
        return TargetKeys()
    found = find_target(session, plan)
    if found is None:
        return TargetKeys(created_keys(plan))
    return TargetKeys.of(plan, read_create_statement(session, found.schema, found.name).text)


def with_extracted_columns(text: str, sql_mode: int, keys: TargetKeys) -> str:
    """An ALTER TABLE, CREATE INDEX or DROP INDEX for a target with ``keys``: keys that it adds get the extracted
    columns. Pure."""
    extension = keys.extension
    if not extension.columns:
        return text
    ddl = parse_ddl(text, "", sql_mode)
    found = tokens(text, sql_mode)
    edits: list[_Edit] = []
    if isinstance(ddl, CreateIndex) and ddl.unique:
        edits += _listed([token for token in found if token.start >= ddl.table.end], extension)
    for clause in ddl.clauses if isinstance(ddl, AlterTable) else ():
        own = [token for token in found if clause.start <= token.start < clause.end]
        if clause.kind in _KEYS:
            edits += _listed(own, extension)
        elif clause.kind in _DEFINE_COLUMNS:
            for part in add_list_elements(own):
                kind = element_kind(part)
                edits += _listed(part, extension) if kind in _KEYS else _declared(part, extension)
            if not add_list_elements(own):
                edits += _declared(_definition(own), extension)
    if isinstance(ddl, AlterTable):
        edits += (_Edit(len(text), len(text), clause=clause) for clause in _emptied(ddl, keys))
    return _edited(text, edits)


def _emptied(ddl: AlterTable, keys: TargetKeys) -> Iterator[str]:
    """Clauses that drop the keys of which the statement leaves only extracted columns."""
    kinds = {clause.kind for clause in ddl.clauses}
    gone = {name.lower() for clause in ddl.clauses if clause.kind is ClauseKind.DROP_COLUMN for name in clause.columns}
    dropped = {clause.name.lower() for clause in ddl.clauses if clause.kind in _DROP_KEYS}
    extracted = {name.lower() for name in keys.extension.columns}
    for key in keys.present:
        columns = {name.lower() for name in key.columns}
        if not columns & gone or not columns & extracted or not columns <= gone | extracted:
            continue
        if key.name and key.name.lower() not in dropped:
            yield f"DROP INDEX {quote_name(key.name)}"
        elif not key.name and ClauseKind.DROP_PRIMARY_KEY not in kinds:
            yield "DROP PRIMARY KEY"


def with_extracted_keys(definition: TableDefinition, extension: KeyExtension) -> TableDefinition:
    """The structure of a shard table, with the unique keys that its target has for it. The same object where nothing
    differs. Pure."""
    if not extension.columns:
        return definition
    indexes = tuple(
        index.extended(names) if index.unique and (names := extension.of(index.columns)) else index
        for index in definition.indexes
    )
    primary = definition.primary_key
    if primary and (names := extension.of((key := read_index(primary)).columns)):
        primary = lowercase_names(key.extended(names).text)
    return replace(definition, indexes=indexes, primary_key=primary)


def _listed(found: Sequence[Token], extension: KeyExtension) -> Iterator[_Edit]:
    """For a key with a list of columns."""
    start = next((at for at, token in enumerate(found) if token.is_symbol("(")), len(found))
    words = TokenReader(found[start:], "")
    if not words.group():
        return
    end = start + words.at - 1
    columns = [part[0].text for part in split_at_commas(found[start + 1 : end]) if part and part[0].is_name]
    if names := extension.of(columns):
        yield _Edit(found[end].start, found[end].start, "".join(f", {quote_name(name)}" for name in names))


def _definition(own: Sequence[Token]) -> Sequence[Token]:
    """The column and its definition in ADD, MODIFY and CHANGE."""
    words = TokenReader(own, "")
    is_change = words.take("CHANGE")
    words.take("ADD", "MODIFY")
    words.take("COLUMN")
    words.exists()
    if is_change:
        words.name()
    return words.rest()


def _declared(part: Sequence[Token], extension: KeyExtension) -> Iterator[_Edit]:
    """For the keys in a column's definition: [PRIMARY] KEY, UNIQUE [KEY]."""
    if not part or not part[0].is_name:
        return
    column = part[0].text
    names = extension.of([column])
    if not names:
        return
    listed = ", ".join(map(quote_name, (column, *names)))
    at = 1
    while at < len(part):
        words = TokenReader(part[at:], "")
        if words.group():
            at += words.at
            continue
        if words.take("UNIQUE"):
            words.take("KEY")
            yield _Edit(part[at].start, part[at + words.at - 1].end, clause=f"ADD UNIQUE KEY ({listed})")
        elif words.take_all("PRIMARY", "KEY") or words.take("KEY"):
            yield _Edit(part[at].start, part[at + words.at - 1].end, clause=f"ADD PRIMARY KEY ({listed})")
        at += max(words.at, 1)


def _edited(text: str, edits: Sequence[_Edit]) -> str:
    text = text.rstrip().rstrip(";") if edits else text
    clauses = [edit.clause for edit in edits if edit.clause]
    for edit in sorted(edits, key=lambda each: each.start, reverse=True):
        text = (
            text[: edit.start].rstrip(" ") + edit.text + text[edit.end :]
            if edit.clause
            else (text[: edit.start] + edit.text + text[edit.end :])
        )
    return ", ".join((text, *clauses))
