"""The references of a task file: columns that hold values of another table's column, with or without a foreign key."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto.config.document.file_model import FileModel
from shardmerge.proto.config.key import Key

_PART = re.compile(r"`(?:[^`]|``)+`|[^.`]+")

NUMBER = "*"
"""In the name of a shard table: the digits at the end of the name of the shard table with the column."""


def split_column(text: str) -> tuple[str, str, str]:
    """(schema, table, column) of ``table.column`` or ``schema.table.column``; the schema may be "". A name with a dot
    is in backticks. Raises ValueError."""
    parts: list[str] = []
    at = 0
    while True:
        found = _PART.match(text, at)
        if found is None:
            break
        part = found.group()
        parts.append(part[1:-1].replace("``", "`") if part.startswith("`") else part)
        at = found.end()
        if at == len(text) or text[at] != ".":
            break
        at += 1
    if at != len(text) or len(parts) not in {2, 3} or any(len(part) > 64 for part in parts):
        raise ValueError("is no `table.column` or `schema.table.column` of the target")
    schema, table, column = ("", *parts) if len(parts) == 2 else parts
    return schema, table, column


def _column(text: str) -> str:
    split_column(text)
    return text


def _shard_name(text: str) -> str:
    if text.count(NUMBER) > 1:
        raise ValueError("may have one `*`, for the digits at the end of the other shard table's name")
    return text


ColumnText = Annotated[str, AfterValidator(_column)]
ShardName = Annotated[str, Field(max_length=64), AfterValidator(_shard_name)]


class Reference(FileModel):
    """A column of a target table that refers to a column of another target table, or of the same one."""

    from_: Annotated[
        ColumnText,
        Field(alias="from"),
        Key("The column at the target: table.column.", sample="orders.user_id"),
    ]
    to: Annotated[ColumnText, Key("The column that it refers to.", sample="users.id")]
    shard_table: Annotated[
        ShardName,
        Key(
            "The name of the shard table that a shard table refers to. `*` is the digits at the end of the "
            "name of the shard table with the column.",
            default="the table's name in `to`, and what follows the table's name of `from` in the shard table's name; "
            "within one target table the shard table itself",
            sample="users_*",
        ),
    ] = ""
    shard_schema: Annotated[
        ShardName, Key("The schema of that shard table; `*` as in shard-table.", default="the same schema")
    ] = ""

    @model_validator(mode="after")
    def _differs(self) -> Reference:
        if split_column(self.from_) == split_column(self.to):
            raise ValueError("from and to are the same column")
        return self

    def to_proto(self) -> pb.ReferenceRule:
        schema, table, column = split_column(self.from_)
        to_schema, to_table, to_column = split_column(self.to)
        return pb.ReferenceRule(
            schema=schema,
            table=table,
            column=column,
            to_schema=to_schema,
            to_table=to_table,
            to_column=to_column,
            shard_schema=self.shard_schema,
            shard_table=self.shard_table,
        )


class _ListOrNone:
    """In an ``Annotated``: the word ``none`` is an empty list."""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [handler(core), {"const": "none"}]}


def _empty_if_none(value: object) -> object:
    return () if value == "none" else value


References = Annotated[tuple[Reference, ...], BeforeValidator(_empty_if_none), _ListOrNone()]
