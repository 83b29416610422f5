"""A rule of `transforms` in a task file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto.config.document.file_model import FileModel
from shardmerge.proto.config.key import Key
from shardmerge.proto.config.rules.pattern_text import SCHEMAS, TABLES, Identifier, OptionalPattern, PatternText
from shardmerge.proto.config.rules.transform import TransformRefused, check_condition, split_items
from shardmerge.proto.config.rules.transforms.python_function import function_name, output_type


def _projection(text: str) -> str:
    return _readable(text, split_items)


def _condition(text: str) -> str:
    return _readable(text, check_condition)


def _readable(text: str, read: Callable[[str], object]) -> str:
    try:
        if text.strip():
            read(text)
    except TransformRefused as reason:
        raise ValueError(f"cannot be used: {reason}") from None
    return text


def _function(text: str) -> str:
    if text:
        function_name(text)
    return text


def _type(text: str) -> str:
    output_type(text)
    return text


OutputText = Annotated[str, AfterValidator(_type)]


class Transform(FileModel):
    """Our own: a rule of ``transforms``. Either ``projection``, a SELECT list in Spark SQL, and ``filter``, a condition
    in it; or ``python``, a function over the Arrow arrays of ``columns`` that computes ``output``."""

    schema_pattern: Annotated[PatternText, SCHEMAS]
    table_pattern: Annotated[OptionalPattern, TABLES] = ""
    projection: Annotated[
        str, AfterValidator(_projection), Key("A SELECT list in Spark SQL.", default="every column as it is")
    ] = ""
    filter: Annotated[
        str, AfterValidator(_condition), Key("A condition in Spark SQL that rows must meet.", default="all rows")
    ] = ""
    python: Annotated[
        str,
        AfterValidator(_function),
        Key(
            "package.module:function, a function in Python that gets a pyarrow.RecordBatch. The worker's file must "
            "name the module in transform-modules."
        ),
    ] = ""
    columns: Annotated[tuple[Identifier, ...], Key("With python: the columns of the batch, in this order.")] = ()
    output: Annotated[
        dict[Identifier, OutputText],
        Key("With python: the columns that the function returns, in this order, with their types."),
    ] = Field(default_factory=dict[str, str])
    row_filter: Annotated[
        bool,
        Key(
            "With python: the function returns a boolean column first, which is true for the rows that the target has."
        ),
    ] = False

    @model_validator(mode="after")
    def _does_something(self) -> Transform:
        is_sql = bool(self.projection.strip() or self.filter.strip())
        if self.python:
            if is_sql:
                raise ValueError("has python, and projection or filter: use one of both")
            if not self.columns:
                raise ValueError("python needs columns")
            if not self.output and not self.row_filter:
                raise ValueError("python needs output, or row-filter: true")
            for names in (self.columns, tuple(self.output)):
                if len({name.lower() for name in names}) != len(names):
                    raise ValueError("a column is named twice")
            return self
        if self.columns or self.output or self.row_filter:
            raise ValueError("columns, output and row-filter need python")
        if not is_sql:
            raise ValueError("needs a projection, a filter, or python")
        return self

    def to_proto(self, name: str) -> pb.Transform:
        types = {column: output_type(text) for column, text in self.output.items()}
        return pb.Transform(
            name=name,
            schema_pattern=self.schema_pattern,
            table_pattern=self.table_pattern,
            projection=self.projection,
            filter=self.filter,
            python=self.python,
            columns=self.columns,
            outputs=[
                pb.TransformOutput(name=column, type=kind.type, nullable=kind.nullable)
                for column, kind in types.items()
            ],
            row_filter=self.row_filter,
        )
