"""The rules of a task file: block-allow lists, routes, filters, column mappings, transforms."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from proto import config_pb2 as pb
from proto.config.finding import nearest
from proto.config.key import Key
from proto.config.model import FileModel
from proto.config.partition_id import INSTANCE_BITS
from proto.config.pattern import PatternError, compile_pattern
from proto.config.regex import compile_regex


def _pattern(text: str) -> str:
    try:
        compile_pattern(text, case_sensitive=True)
    except PatternError as error:
        raise ValueError(f"pattern {text!r}: {error}") from error
    return text


PatternText = Annotated[str, AfterValidator(_pattern)]
OptionalPattern = Annotated[str, AfterValidator(lambda text: text and _pattern(text))]
Identifier = Annotated[str, Field(min_length=1, max_length=64)]


_SCHEMAS = Key(
    "Pattern of schemas: wildcards `?`, `[a-z]`, `*` at the end, or `~` and a regular expression.", sample="shard_*"
)
_TABLES = Key("Pattern of tables.", default="every table of the schemas", sample="order_*")


class TablePattern(FileModel):
    """Tables of a block-allow list."""

    db_name: Annotated[PatternText, Key("Pattern of schemas.", sample="shard_*")]
    tbl_name: Annotated[PatternText, Key("Pattern of tables.", sample="order_*")]


class BlockAllow(FileModel):
    """Which tables take part: first the schema is asked, then the table."""

    do_dbs: Annotated[
        tuple[PatternText, ...], Key("Patterns of schemas; with any, only these take part.", sample='["shard_*"]')
    ] = ()
    ignore_dbs: Annotated[
        tuple[PatternText, ...], Key("Patterns of schemas that take no part; not looked at beside do-dbs.")
    ] = ()
    do_tables: Annotated[
        tuple[TablePattern, ...], Key("Tables that take part; with any, only these and no others.")
    ] = ()
    ignore_tables: Annotated[tuple[TablePattern, ...], Key("Tables that take no part, unless do-tables has them.")] = ()

    def to_proto(self, name: str) -> pb.BlockAllowList:
        return pb.BlockAllowList(
            name=name,
            do_dbs=self.do_dbs,
            ignore_dbs=self.ignore_dbs,
            do_tables=[pb.TableName(schema=t.db_name, table=t.tbl_name) for t in self.do_tables],
            ignore_tables=[pb.TableName(schema=t.db_name, table=t.tbl_name) for t in self.ignore_tables],
        )


def _groups(text: str) -> str:
    if text.startswith("~"):
        raise ValueError("is a regular expression without ~ before it, which would be a character of the name")
    if not compile_regex(text).group_count:
        raise ValueError("needs a group (…), which matches what is to stand in the column")
    return text


def _expression(text: str) -> str:
    compile_regex(text)
    return text


GroupsText = Annotated[str, AfterValidator(_groups)]
ExpressionText = Annotated[str, AfterValidator(_expression)]


class ExtractTable(FileModel):
    """A column of the target that tells the table that a row came from."""

    table_regexp: Annotated[GroupsText, Key("Regular expression of the table's name; the column gets its groups.")]
    target_column: Annotated[Identifier, Key("The target's column.")]

    def to_proto(self) -> pb.ExtractColumn:
        return pb.ExtractColumn(pattern=self.table_regexp, target_column=self.target_column)


class ExtractSchema(FileModel):
    """A column of the target that tells the schema that a row came from."""

    schema_regexp: Annotated[GroupsText, Key("Regular expression of the schema's name; the column gets its groups.")]
    target_column: Annotated[Identifier, Key("The target's column.")]

    def to_proto(self) -> pb.ExtractColumn:
        return pb.ExtractColumn(pattern=self.schema_regexp, target_column=self.target_column)


class ExtractSource(FileModel):
    """A column of the target that tells the source that a row came from."""

    source_regexp: Annotated[GroupsText, Key("Regular expression of the source's name; the column gets its groups.")]
    target_column: Annotated[Identifier, Key("The target's column.")]

    def to_proto(self) -> pb.ExtractColumn:
        return pb.ExtractColumn(pattern=self.source_regexp, target_column=self.target_column)


class Route(FileModel):
    """Without ``table_pattern`` every table of the schemas; without ``target_table`` each keeps its name."""

    schema_pattern: Annotated[PatternText, _SCHEMAS]
    table_pattern: Annotated[OptionalPattern, _TABLES] = ""
    target_schema: Annotated[Identifier, Key("The target's schema.", sample="shop")]
    target_table: Annotated[
        str, Field(max_length=64), Key("The target's table.", default="each table keeps its name", sample="orders")
    ] = ""
    extract_table: Annotated[ExtractTable | None, Key("Write (a part of) the table's name into a column.")] = None
    extract_schema: Annotated[ExtractSchema | None, Key("Write (a part of) the schema's name into a column.")] = None
    extract_source: Annotated[ExtractSource | None, Key("Write (a part of) the source-id into a column.")] = None

    def to_proto(self, name: str) -> pb.RouteRule:
        return pb.RouteRule(
            name=name,
            schema_pattern=self.schema_pattern,
            table_pattern=self.table_pattern,
            target_schema=self.target_schema,
            target_table=self.target_table,
            extract_table=self.extract_table and self.extract_table.to_proto(),
            extract_schema=self.extract_schema and self.extract_schema.to_proto(),
            extract_source=self.extract_source and self.extract_source.to_proto(),
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
    """A rule of ``filters``. ``sql_pattern``: of the text of DDL, whatever the case."""

    schema_pattern: Annotated[PatternText, _SCHEMAS]
    table_pattern: Annotated[OptionalPattern, _TABLES] = ""
    events: Annotated[tuple[EventName, ...], Key("Names of events, e.g. `delete`, `truncate table`, `all ddl`.")] = ()
    sql_pattern: Annotated[
        tuple[ExpressionText, ...], Key("Regular expressions of a DDL's text, whatever the case.")
    ] = ()
    action: Annotated[
        str,
        AfterValidator(_action),
        Key("`Do`: only these pass; `Ignore`: these are passed over; `Error`: these stop the task."),
    ]

    @model_validator(mode="after")
    def _says_which(self) -> EventFilter:
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


class ExpressionFilter(FileModel):
    """A rule of ``expression-filter``: for one table by its exact name, one kind of change."""

    schema_: Annotated[Identifier, Field(alias="schema"), Key("The schema's exact name.")]
    table: Annotated[Identifier, Key("The table's exact name.")]
    insert_value_expr: Annotated[str, Key("Inserted rows for which this is true are passed over.")] = ""
    update_old_value_expr: Annotated[
        str, Key("Updates whose row was so are passed over; beside update-new-value-expr both must be true.")
    ] = ""
    update_new_value_expr: Annotated[str, Key("Updates whose row becomes so are passed over.")] = ""
    delete_value_expr: Annotated[str, Key("Deleted rows for which this is true are passed over.")] = ""

    @model_validator(mode="after")
    def _of_one_kind(self) -> ExpressionFilter:
        update = bool(self.update_old_value_expr or self.update_new_value_expr)
        kinds = [bool(self.insert_value_expr), update, bool(self.delete_value_expr)]
        if sum(kinds) != 1:
            raise ValueError(
                "needs one of insert-value-expr, delete-value-expr, update-old-value-expr with update-new-value-expr"
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


class Transform(FileModel):
    """Our own: a rule of ``transforms``. ``projection``: a SELECT list in Spark SQL; ``filter``: a condition in it."""

    schema_pattern: Annotated[PatternText, _SCHEMAS]
    table_pattern: Annotated[OptionalPattern, _TABLES] = ""
    projection: Annotated[str, Key("A SELECT list in Spark SQL.", default="every column as it is")] = ""
    filter: Annotated[str, Key("A condition in Spark SQL that rows must meet.", default="all rows")] = ""

    @model_validator(mode="after")
    def _does_something(self) -> Transform:
        if not self.projection.strip() and not self.filter.strip():
            raise ValueError("needs a projection or a filter")
        return self

    def to_proto(self, name: str) -> pb.Transform:
        return pb.Transform(
            name=name,
            schema_pattern=self.schema_pattern,
            table_pattern=self.table_pattern,
            projection=self.projection,
            filter=self.filter,
        )


class ColumnMapping(FileModel):
    """``arguments``: the text for ``add prefix`` and ``add suffix``; for ``partition id`` the instance
    number, the schema prefix, the table prefix and optionally a separator ("" leaves a part out)."""

    schema_pattern: Annotated[PatternText, _SCHEMAS]
    table_pattern: Annotated[OptionalPattern, _TABLES] = ""
    source_column: Annotated[str, Key("The column; must be target-column.", default="target-column", sample="id")] = ""
    target_column: Annotated[Identifier, Key("The column.", sample="id")]
    expression: Annotated[
        Literal["partition id", "add prefix", "add suffix"],
        Key(
            "`partition id` makes ids unique among shards; `add prefix` and `add suffix` add text.",
            sample="partition id",
        ),
    ]
    arguments: Annotated[
        tuple[str, ...],
        Key(
            "The text to add; for partition id the instance number (0 to 15), the schema prefix, the table prefix and "
            'optionally a separator; "" leaves a part out and gives its bits to the id.',
            sample='["1", "shard", "order", "_"]',
        ),
    ]
    create_table_query: Annotated[
        str, Key("In DM's list, used by nobody.", here="no effect: the target table is made from the source's")
    ] = ""

    @model_validator(mode="after")
    def _arguments_fit(self) -> ColumnMapping:
        if self.source_column and self.source_column.lower() != self.target_column.lower():
            raise ValueError("source-column and target-column must be the same column")
        if self.expression != "partition id":
            if len(self.arguments) != 1 or not self.arguments[0]:
                raise ValueError(f"{self.expression} needs one argument, the text to add")
            return self
        if len(self.arguments) not in {3, 4}:
            raise ValueError("partition id needs 3 or 4 arguments: instance, schema prefix, table prefix, separator")
        if not any(self.arguments[:3]):
            raise ValueError("partition id needs an instance number, a schema prefix or a table prefix")
        instance = self.arguments[0]
        if instance and not (instance.isascii() and instance.isdecimal() and int(instance) < 2**INSTANCE_BITS):
            raise ValueError(f"the instance number must be 0 to {2**INSTANCE_BITS - 1}")
        return self

    def to_proto(self, name: str) -> pb.ColumnMappingRule:
        return pb.ColumnMappingRule(
            name=name,
            schema_pattern=self.schema_pattern,
            table_pattern=self.table_pattern,
            source_column=self.source_column or self.target_column,
            target_column=self.target_column,
            expression=self.expression,
            arguments=self.arguments,
        )
