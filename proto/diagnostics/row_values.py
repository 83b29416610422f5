"""Leaves values of rows and literals of statements out of errors, texts and answers, for a support bundle. Pure.

Of an error of the catalogue it is known which of its values can have them. The message is rendered without these. Of an
error that is not in the catalogue only its code and its name are kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar, cast

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from shardmerge.proto import errors
from shardmerge.proto.common_pb2 import ErrorDetail
from shardmerge.proto.errors import CATALOGUE, ErrorSpec, ShardmergeError
from shardmerge.proto.rpc.coded_errors import error_from_proto, error_to_proto

LEFT_OUT = "(left out)"
Answer = TypeVar("Answer", bound=Message)

_STATEMENTS = frozenset({"statement", "part", "done", "left", "other", "given"})
_HELD = {
    "check": frozenset({"low", "high", "found", "more", "condition"}),
    "ddl": _STATEMENTS,
    "decode": frozenset({"value", "code", "common", "statement"}),
    "master": frozenset({"statement"}),
    "read": frozenset({"value", "statement"}),
    "replicate": frozenset({"key", "other", "statement"}),
    "snapshot": frozenset({"key", "found", "last", "statement"}),
}
"""Names of values with rows or statements in them, by the class of the error."""
_WITH_REASON = frozenset(
    {
        errors.ddl.DDL_PART_REFUSED.code,
        errors.ddl.DDL_REFUSED.code,
        errors.relay.RELAY_CRASHED.code,
        errors.replicate.EXPRESSION_FAILED.code,
        errors.replicate.FUNCTION_RESULT.code,
        errors.replicate.QUARANTINE_FULL.code,
        errors.replicate.ROW_REFUSED.code,
        errors.replicate.TARGET_CONFLICT.code,
        errors.replicate.TARGET_DUPLICATE_OTHER_KEY.code,
        errors.replicate.TARGET_REJECTED.code,
        errors.replicate.TARGET_STATEMENT.code,
        errors.replicate.TRANSFORM_FAILED.code,
        errors.snapshot.INDEXES_NOT_ADDED.code,
        errors.worker.INTERNAL.code,
        errors.worker.SPARK_LOST.code,
        errors.worker.SPARK_TASK_LOST.code,
    }
)
"""Their reason is the text of a server about rows, or that of an exception. A trigger can raise any text."""
_NAMES = frozenset(
    {
        *("source", "sources", "task", "tasks", "position", "worker", "peer", "path", "endpoints"),
        *("table", "tables", "schema", "target", "target_schema", "target_table", "column", "columns"),
        *("host", "port", "address", "user", "errno"),
    }
)
"""Names and places: they are kept as they are."""
_DDL_FIELDS = frozenset({"ddl", "ddls", "blocking_ddls"})
_REASON_FIELDS = frozenset({"reason", "error", "msg", "note"})

_CODED = re.compile(r"\[(\d{5}) [a-z0-9-]+\]")
_QUOTED = re.compile(r"(?<!\w)(?:[xXbBnN]|_\w+)?(['\"])(?:.*\1|.*\Z)", re.DOTALL)
"""From the first opening quote to the last quote: a value may have quotes in it. A genitive opens nothing."""
_TOKEN = re.compile(
    r"`[^`]*`|(?P<literal>(?:(?<!\w)(?:[xXbBnN]|_\w+))?'(?:[^'\\]|'')*'|\"(?:[^\"\\]|\"\")*\"|\b0[xX][0-9a-fA-F]+)"
    r"|(?P<comment>/\*.*?\*/|--[^\n]*|\#[^\n]*)|(?P<rest>['\"`].*|/\*.*)",
    re.DOTALL,
)


def without_values(error: ShardmergeError) -> ShardmergeError:
    """The error without the values of rows and statements in it."""
    spec = CATALOGUE.get(error.code)
    if spec is None:
        kept = {name: value for name, value in error.values.items() if name in _NAMES}
        return ShardmergeError(replace(error.spec, message=f"{LEFT_OUT}: another version's error", workaround=""), kept)
    held = _held(spec)
    values = {name: value for name, value in error.values.items() if name in _NAMES | spec.placeholders()}
    return spec(**{name: _shown(name, value, held) for name, value in values.items()})


def text_without_values(text: str) -> str:
    """``text``, which may have coded errors in it. After the name of one that can have values, it is cut."""
    found = list(_CODED.finditer(text))
    for each in found:
        spec = CATALOGUE.get(int(each[1]))
        if spec is None or _held(spec) & spec.placeholders():
            return f"{without_literals(text[: each.start()])}{each[0]} {LEFT_OUT}"
    return without_literals(text) if found else text


def without_literals(text: str) -> str:
    """A text of a server, or about one: what is quoted is left out, except names in backticks."""
    return _QUOTED.sub("'…'", text)


def ddl_without_literals(statement: str) -> str:
    """A statement without its texts and comments. Where it is unclear how a text ends, the rest is left out."""

    def shown(found: re.Match[str]) -> str:
        if found["literal"] is not None:
            return "'…'"
        if found["rest"] is not None:
            return "…"
        return " " if found["comment"] is not None else found[0]

    return _TOKEN.sub(shown, statement)


def answer_without_values(answer: Answer) -> Answer:
    """A copy of ``answer``: its errors, statements and texts have no values of rows."""
    copy = type(answer)()
    copy.CopyFrom(answer)
    _clean(copy)
    return copy


def log_line_without_values(line: str) -> str:
    """A line of JSON from a daemon, perhaps of another version."""
    try:
        fields = json.loads(line)
    except ValueError:
        return json.dumps({"event": LEFT_OUT})
    return json.dumps(_clean_json("", fields), ensure_ascii=False, separators=(",", ":"))


def field_without_values(name: str, text: str) -> str:
    """The text of a log line's field."""
    return without_literals(text_without_values(text)) if name in _REASON_FIELDS else text_without_values(text)


def _held(spec: ErrorSpec) -> frozenset[str]:
    held = _HELD.get(spec.error_class, frozenset[str]())
    return held | {"reason"} if spec.code in _WITH_REASON else held


def _shown(name: str, value: str, held: frozenset[str]) -> str:
    if name in held:
        return LEFT_OUT
    return value if name in _NAMES else field_without_values("reason", value)


def _clean(message: Message) -> None:
    for field, value in cast("list[tuple[FieldDescriptor, object]]", message.ListFields()):
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            continue
        if field.message_type is not None:
            for each in _each(field, value):
                if isinstance(each, ErrorDetail):
                    each.CopyFrom(error_to_proto(without_values(error_from_proto(each))))
                else:
                    _clean(cast("Message", each))
        elif field.type == FieldDescriptor.TYPE_STRING:
            change = ddl_without_literals if field.name in _DDL_FIELDS else _text_of(field.name)
            if field.is_repeated:
                texts = [change(text) for text in cast("list[str]", value)]
                del getattr(message, field.name)[:]
                getattr(message, field.name).extend(texts)
            else:
                setattr(message, field.name, change(cast("str", value)))


def _text_of(name: str) -> Callable[[str], str]:
    return lambda text: field_without_values(name, text)


def _each(field: FieldDescriptor, value: object) -> Iterator[object]:
    if field.is_repeated:
        yield from cast("Iterator[object]", value)
    else:
        yield value


def _clean_json(name: str, value: object) -> object:
    if isinstance(value, str):
        return field_without_values(name, value)
    if isinstance(value, list):
        return [_clean_json(name, each) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        return {key: _clean_json(key, each) for key, each in cast("dict[str, object]", value).items()}
    return value
