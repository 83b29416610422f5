"""Decides which keys of an existing target lack the columns that routes extract from names, and writes the ALTER TABLE
that adds them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardmerge.worker.core.mysql.connection import quote_name
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.sql.table_text import Index, read_create_table
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import Constant, TablePlan, TargetTable
from shardmerge.worker.ddl.sql.column_definition import parse_column
from shardmerge.worker.ddl.sql.table_definition import parse_table_definition
from shardmerge.worker.target.tables.extracted_keys import comparable_text, created_keys, key_type
from shardmerge.worker.verify.precheck.target.key_length import KeyLimits


@dataclass(frozen=True, slots=True)
class MissingColumns:
    """``key`` lacks the extracted ``columns``."""

    key: Index
    columns: tuple[str, ...]

    @property
    def extended(self) -> Index:
        return self.key.extended(self.columns)


@dataclass(frozen=True, slots=True)
class TooLong:
    """The server cannot have ``key`` with the extracted ``columns``. ``found``, ``limit``: for people."""

    key: Index
    columns: tuple[str, ...]
    found: str
    limit: str


@dataclass(frozen=True, slots=True)
class ExistingTarget:
    """``creation``: its CREATE TABLE. ``plans``: of the shard tables that this source merges into it."""

    table: Table
    creation: CreateStatement
    plans: tuple[TablePlan, ...]

    @property
    def name(self) -> str:
        return f"{self.table.schema}.{self.table.name}"


def missing_columns(target: ExistingTarget) -> tuple[MissingColumns, ...]:
    """The keys that need extracted columns and lack them. Raises UnreadableCreateTable."""
    written = {column.target_name.lower() for plan in target.plans for column in plan.columns}
    written |= {column.name.lower() for column in target.table.columns if column.generated}
    found: list[MissingColumns] = []
    for key in read_create_table(target.creation.text).unique_keys:
        names = {name.lower() for name in key.columns}
        if not names <= written:
            continue  # the target gives each row a value of its own, like an AUTO_INCREMENT
        columns = tuple(dict.fromkeys(name for plan in target.plans for name in created_keys(plan).of(key.columns)))
        if columns and not _distinguishes(names, target.plans):
            found.append(MissingColumns(key, columns))
    return tuple(found)


def _distinguishes(names: set[str], plans: Sequence[TablePlan]) -> bool:
    """Whether the extracted columns among these differ for the shard tables. The user has chosen them: those of other
    sources are not asked."""
    texts = [
        tuple(
            comparable_text(column.mapping.text)
            for column in plan.columns
            if isinstance(column.mapping, Constant) and column.target_name.lower() in names
        )
        for plan in plans
    ]
    return all(texts) and len(set(texts)) == len(texts)


def collide(missing: Sequence[MissingColumns], present: Sequence[Index], plan: TablePlan) -> bool:
    """Whether the table was made without thought of the extracted columns: no key has them, or not the primary key.
    Else a further unique key may be meant to span the shard tables."""
    extracted = {name.lower() for name in plan.constant_columns}
    none_has = all(extracted.isdisjoint(name.lower() for name in key.columns) for key in present)
    return none_has or any(not each.key.name for each in missing)


def repair_statement(target: ExistingTarget, missing: Sequence[MissingColumns], limits: KeyLimits) -> str | TooLong:
    """The ALTER TABLE that adds the columns to the keys. Raises UnreadableCreateTable."""
    definition = parse_table_definition(target.creation)
    mappings = {
        column.target_name: column.mapping
        for plan in target.plans
        for column in plan.columns
        if isinstance(column.mapping, Constant)
    }
    short = {
        name.lower(): parse_column(name, f" {key_type(mapping)}", target.creation.collation).type
        for name, mapping in mappings.items()
    }
    types = {column.key: column.type for column in definition.columns}
    wanted = {name: type_ for name, type_ in short.items() if name in types and types[name].needs_prefix}
    for each in missing:
        if limits.exceeded(each.extended, types | short) is None and limits.exceeded(each.extended, short | types):
            wanted |= {name.lower(): short[name.lower()] for name in each.columns}
    clauses: list[str] = []
    for name in dict.fromkeys(name for each in missing for name in each.columns):
        column = definition.column(name.lower())
        unfit = column is None or name.lower() in wanted
        if column is None or unfit or column.nullable:
            type_ = short[name.lower()] if column is None or unfit else column.type
            verb = "ADD" if column is None else "MODIFY"
            clauses.append(f"{verb} COLUMN {quote_name(name)} {type_.sql} NOT NULL")
    types |= wanted
    for each in missing:
        key = each.extended
        found = limits.exceeded(key, short | types)
        if found is not None:
            return TooLong(each.key, each.columns, *found)
        drop = f"DROP INDEX {quote_name(key.name)}" if key.name else "DROP PRIMARY KEY"
        clauses += (drop, f"ADD {key.text}")
    return f"ALTER TABLE {TargetTable(target.table.schema, target.table.name).quoted} {', '.join(clauses)}"


def too_long(creation: CreateStatement, plan: TablePlan, limits: KeyLimits) -> TooLong | None:
    """Whether a key of the target that ``creation`` creates is too long by the extracted columns. Raises
    UnreadableCreateTable."""
    extracted = {name.lower() for name in plan.constant_columns}
    types = {column.key: column.type for column in parse_table_definition(creation).columns}
    for key in read_create_table(creation.text).unique_keys:
        added = tuple(name for name in key.columns if name.lower() in extracted)
        found = limits.exceeded(key, types) if added else None
        if found is not None:
            return TooLong(key, added, *found)
    return None
