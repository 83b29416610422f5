"""The filters of a task file: of events by their kind, of rows by an expression."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto.config.document.file_model import FileModel
from shardmerge.proto.config.finding import nearest
from shardmerge.proto.config.key import Key
from shardmerge.proto.config.rules.expression import ExpressionRefused, parse
from shardmerge.proto.config.rules.pattern_text import (
    SCHEMAS,
    TABLES,
    ExpressionText,
    Identifier,
    OptionalPattern,
    PatternText,
)

EVENTS = frozenset(
    {
        "all",
        "all ddl",
        "all dml",
        "none",
        "none ddl",
        "none dml",
        "insert",
        "update",
        "delete",
        "create database",
        "create schema",
        "drop database",
        "drop schema",
        "alter database",
        "alter schema",
        "create table",
        "drop table",
        "truncate table",
        "rename table",
        "alter table",
        "recover table",
        "create index",
        "drop index",
        "create view",
        "drop view",
        "incompatible ddl changes",
        "add table partition",
        "drop table partition",
        "truncate table partition",
        "reorganize table partition",
        "rebuild table partition",
        "coalesce table partition",
        "split table partition",
        "exchange table partition",
        "alter table partitioning",
        "remove table partitioning",
        "add foreign key",
        "drop foreign key",
        "add primary key",
        "drop primary key",
        "drop unique key",
        "add column",
        "drop column",
        "modify column",
        "rename column",
        "rename index",
        "alter index visibility",
        "value range decrease",
        "precision decrease",
        "modify default value",
        "set default value",
        "modify constraint",
        "modify columns order",
        "modify charset",
        "modify collation",
        "modify schema charset and collate",
        "modify table charset and collate",
        "modify table comment",
        "modify storage engine",
        "remove auto increment",
        "rebase auto id",
        "alter ttl info",
        "alter ttl remove",
        "multi schema change",
    }
)
"""Names of events in a filter (DM docs: "Binlog Event Filter"; tidb pkg/util/filter)."""


def _event(text: str) -> str:
    name = " ".join(text.lower().split())
    if name not in EVENTS:
        near = nearest(name, EVENTS)
        raise ValueError(f"unknown event {text}" + (f"; did you mean {near}?" if near else ""))
    return name


EventName = Annotated[str, AfterValidator(_event)]

_ACTIONS = {"do": pb.FILTER_ACTION_DO, "ignore": pb.FILTER_ACTION_IGNORE, "error": pb.FILTER_ACTION_ERROR}


def _action(text: str) -> str:
    if text.lower() not in _ACTIONS:
        raise ValueError("must be one of Do, Ignore, Error")
    return text.lower()


class EventFilter(FileModel):
    """A rule of ``filters``. ``sql_pattern``: of the text of DDL, case-insensitive."""

    schema_pattern: Annotated[PatternText, SCHEMAS]
    table_pattern: Annotated[OptionalPattern, TABLES] = ""
    events: Annotated[tuple[EventName, ...], Key("Names of events, e.g. `delete`, `truncate table`, `all ddl`.")] = ()
    sql_pattern: Annotated[
        tuple[ExpressionText, ...], Key("Regular expressions of a DDL's text, case-insensitive.")
    ] = ()
    action: Annotated[
        str,
        AfterValidator(_action),
        Key("`Do`: only these are applied; `Ignore`: these are dropped; `Error`: these stop the task."),
    ]

    @model_validator(mode="after")
    def _has_a_condition(self) -> EventFilter:
        if not self.events and not self.sql_pattern:
            raise ValueError("needs events or sql-pattern")
        return self

    def to_proto(self, name: str) -> pb.EventFilter:
        return pb.EventFilter(
            name=name,
            schema_pattern=self.schema_pattern,
            table_pattern=self.table_pattern,
            events=self.events,
            sql_patterns=self.sql_pattern,
            action=_ACTIONS[self.action],
        )


def _condition(text: str) -> str:
    try:
        return text and parse(text).text
    except ExpressionRefused as reason:
        raise ValueError(f"cannot be used: {reason}") from None


Condition = Annotated[str, AfterValidator(_condition)]
"""A condition over one row, checked without knowing the columns' names."""


class ExpressionFilter(FileModel):
    """A rule of ``expression-filter``: for one table by its exact name, one kind of change."""

    schema_: Annotated[Identifier, Field(alias="schema"), Key("The schema's exact name.")]
    table: Annotated[Identifier, Key("The table's exact name.")]
    insert_value_expr: Annotated[Condition, Key("Inserted rows for which this is true are dropped.")] = ""
    update_old_value_expr: Annotated[
        Condition,
        Key("Updates are dropped if this is true for the old row; with update-new-value-expr both must be true."),
    ] = ""
    update_new_value_expr: Annotated[Condition, Key("Updates are dropped if this is true for the new row.")] = ""
    delete_value_expr: Annotated[Condition, Key("Deleted rows for which this is true are dropped.")] = ""

    @model_validator(mode="after")
    def _of_one_kind(self) -> ExpressionFilter:
        update = bool(self.update_old_value_expr or self.update_new_value_expr)
        kinds = [bool(self.insert_value_expr), update, bool(self.delete_value_expr)]
        if sum(kinds) != 1:
            raise ValueError(
                "must be for one kind of change, insert-value-expr, delete-value-expr, or update-old-value-expr and "
                "update-new-value-expr (or one of these two): write a rule for each kind"
            )
        return self

    def to_proto(self, name: str) -> pb.ExpressionFilter:
        return pb.ExpressionFilter(
            name=name,
            schema=self.schema_,
            table=self.table,
            insert_value=self.insert_value_expr,
            update_old_value=self.update_old_value_expr,
            update_new_value=self.update_new_value_expr,
            delete_value=self.delete_value_expr,
        )
