"""The rules of a task file: block-allow lists, routes, column mappings."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator

from proto import config_pb2 as pb
from proto.config.model import FileModel
from proto.config.pattern import PatternError, compile_pattern

INSTANCE_BITS, SCHEMA_BITS, TABLE_BITS = 4, 7, 8
"""Widths of ``partition id``'s parts (docs of tidb-tools' column mapping)."""


def _pattern(text: str) -> str:
    try:
        compile_pattern(text, case_sensitive=True)
    except PatternError as error:
        raise ValueError(f"pattern {text!r}: {error}") from error
    return text


PatternText = Annotated[str, AfterValidator(_pattern)]
OptionalPattern = Annotated[str, AfterValidator(lambda text: text and _pattern(text))]
Identifier = Annotated[str, Field(min_length=1, max_length=64)]


class TablePattern(FileModel):
    db_name: PatternText
    tbl_name: PatternText


class BlockAllow(FileModel):
    do_dbs: tuple[PatternText, ...] = ()
    ignore_dbs: tuple[PatternText, ...] = ()
    do_tables: tuple[TablePattern, ...] = ()
    ignore_tables: tuple[TablePattern, ...] = ()

    def to_proto(self, name: str) -> pb.BlockAllowList:
        return pb.BlockAllowList(
            name=name,
            do_dbs=self.do_dbs,
            ignore_dbs=self.ignore_dbs,
            do_tables=[pb.TableName(schema=t.db_name, table=t.tbl_name) for t in self.do_tables],
            ignore_tables=[pb.TableName(schema=t.db_name, table=t.tbl_name) for t in self.ignore_tables],
        )


class ExtractTable(FileModel):
    table_regexp: str = ""
    target_column: str = ""


class ExtractSchema(FileModel):
    schema_regexp: str = ""
    target_column: str = ""


class ExtractSource(FileModel):
    source_regexp: str = ""
    target_column: str = ""


class Route(FileModel):
    """Without ``table_pattern`` every table of the schemas; without ``target_table`` each keeps its name."""

    schema_pattern: PatternText
    table_pattern: OptionalPattern = ""
    target_schema: Identifier
    target_table: Annotated[str, Field(max_length=64)] = ""
    extract_table: ExtractTable | None = None
    extract_schema: ExtractSchema | None = None
    extract_source: ExtractSource | None = None

    def to_proto(self, name: str) -> pb.RouteRule:
        return pb.RouteRule(
            name=name,
            schema_pattern=self.schema_pattern,
            table_pattern=self.table_pattern,
            target_schema=self.target_schema,
            target_table=self.target_table,
        )


class ColumnMapping(FileModel):
    """``arguments``: the text for ``add prefix`` and ``add suffix``; for ``partition id`` the instance
    number, the schema prefix, the table prefix and optionally a separator ("" leaves a part out)."""

    schema_pattern: PatternText
    table_pattern: OptionalPattern = ""
    source_column: str = ""
    target_column: Identifier
    expression: Literal["partition id", "add prefix", "add suffix"]
    arguments: tuple[str, ...]
    create_table_query: str = ""

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
