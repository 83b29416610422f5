"""The rules of a task file for the targets of tables and the mapping of columns."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto.config.document.file_model import FileModel
from shardmerge.proto.config.key import Key
from shardmerge.proto.config.rules.partition_id import INSTANCE_BITS
from shardmerge.proto.config.rules.pattern_text import (
    SCHEMAS,
    TABLES,
    GroupsText,
    Identifier,
    OptionalPattern,
    PatternText,
)

AUTO_INCREMENTS = {
    "keep": pb.AUTO_INCREMENT_KEEP,
    "after-max": pb.AUTO_INCREMENT_AFTER_MAX,
    "none": pb.AUTO_INCREMENT_NONE,
}

EXTRACT_IN_KEY = {
    "auto": pb.EXTRACT_IN_KEY_AUTO,
    "always": pb.EXTRACT_IN_KEY_ALWAYS,
    "never": pb.EXTRACT_IN_KEY_NEVER,
}


class TablePattern(FileModel):
    """Tables of a block-allow list."""

    db_name: Annotated[PatternText, Key("Pattern of schemas.", sample="shard_*")]
    tbl_name: Annotated[PatternText, Key("Pattern of tables.", sample="order_*")]


class BlockAllow(FileModel):
    """Which tables take part: first the schema is tested, then the table."""

    do_dbs: Annotated[
        tuple[PatternText, ...], Key("Patterns of schemas; with any, only these take part.", sample='["shard_*"]')
    ] = ()
    ignore_dbs: Annotated[
        tuple[PatternText, ...], Key("Patterns of schemas that take no part; ignored if do-dbs is set.")
    ] = ()
    do_tables: Annotated[tuple[TablePattern, ...], Key("Tables that take part; with any, only these.")] = ()
    ignore_tables: Annotated[tuple[TablePattern, ...], Key("Tables that take no part, unless do-tables has them.")] = ()

    def to_proto(self, name: str) -> pb.BlockAllowList:
        return pb.BlockAllowList(
            name=name,
            do_dbs=self.do_dbs,
            ignore_dbs=self.ignore_dbs,
            do_tables=[pb.TableName(schema=t.db_name, table=t.tbl_name) for t in self.do_tables],
            ignore_tables=[pb.TableName(schema=t.db_name, table=t.tbl_name) for t in self.ignore_tables],
        )


class ExtractTable(FileModel):
    """A column of the target that holds the name of the table that a row came from."""

    table_regexp: Annotated[GroupsText, Key("Regular expression of the table's name; the column gets its groups.")]
    target_column: Annotated[Identifier, Key("The target's column.")]

    def to_proto(self) -> pb.ExtractColumn:
        return pb.ExtractColumn(pattern=self.table_regexp, target_column=self.target_column)


class ExtractSchema(FileModel):
    """A column of the target that holds the name of the schema that a row came from."""

    schema_regexp: Annotated[GroupsText, Key("Regular expression of the schema's name; the column gets its groups.")]
    target_column: Annotated[Identifier, Key("The target's column.")]

    def to_proto(self) -> pb.ExtractColumn:
        return pb.ExtractColumn(pattern=self.schema_regexp, target_column=self.target_column)


class ExtractSource(FileModel):
    """A column of the target that holds the name of the source that a row came from."""

    source_regexp: Annotated[GroupsText, Key("Regular expression of the source's name; the column gets its groups.")]
    target_column: Annotated[Identifier, Key("The target's column.")]

    def to_proto(self) -> pb.ExtractColumn:
        return pb.ExtractColumn(pattern=self.source_regexp, target_column=self.target_column)


class Route(FileModel):
    """Without ``table_pattern`` every table of the schemas; without ``target_table`` each keeps its name."""

    schema_pattern: Annotated[PatternText, SCHEMAS]
    table_pattern: Annotated[OptionalPattern, TABLES] = ""
    target_schema: Annotated[Identifier, Key("The target's schema.", sample="shop")]
    target_table: Annotated[
        str, Field(max_length=64), Key("The target's table.", default="each table keeps its name", sample="orders")
    ] = ""
    auto_increment: Annotated[
        Literal["", "keep", "after-max", "none"],
        Key(
            "Our own: as the task's auto-increment, for the targets of this route.",
            default="the task's auto-increment",
        ),
    ] = ""
    extract_table: Annotated[ExtractTable | None, Key("Write (a part of) the table's name into a column.")] = None
    extract_schema: Annotated[ExtractSchema | None, Key("Write (a part of) the schema's name into a column.")] = None
    extract_source: Annotated[ExtractSource | None, Key("Write (a part of) the source-id into a column.")] = None
    extract_in_key: Annotated[
        Literal["", "auto", "always", "never"],
        Key(
            "Our own: as the task's extract-in-key, for the targets of this route.",
            default="the task's extract-in-key",
        ),
    ] = ""

    def to_proto(self, name: str) -> pb.RouteRule:
        return pb.RouteRule(
            name=name,
            schema_pattern=self.schema_pattern,
            table_pattern=self.table_pattern,
            target_schema=self.target_schema,
            target_table=self.target_table,
            auto_increment=AUTO_INCREMENTS.get(self.auto_increment, pb.AUTO_INCREMENT_UNSPECIFIED),
            extract_table=self.extract_table and self.extract_table.to_proto(),
            extract_schema=self.extract_schema and self.extract_schema.to_proto(),
            extract_source=self.extract_source and self.extract_source.to_proto(),
            extract_in_key=EXTRACT_IN_KEY.get(self.extract_in_key, pb.EXTRACT_IN_KEY_UNSPECIFIED),
        )


class ColumnMapping(FileModel):
    """``arguments``: the text for ``add prefix`` and ``add suffix``; for ``partition id`` the instance
    number, the schema prefix, the table prefix and optionally a separator ("" leaves a part out)."""

    schema_pattern: Annotated[PatternText, SCHEMAS]
    table_pattern: Annotated[OptionalPattern, TABLES] = ""
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
        str, Key("In DM's list, but unused.", effect="no effect: the target table is created from the source's")
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
