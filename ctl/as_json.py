"""Answers as JSON text with TiDB DM's field names; pure.

The mapping is protobuf's JSON mapping (https://protobuf.dev/programming-guides/json/) as DM's
dmctl prints it: lowerCamelCase names, default values printed, 64-bit integers as strings, a message
that is not set as ``null``, the members of a oneof only when set. Enums are DM's words.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import cast

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from shardmerge.ctl.dm_words import enum_word
from shardmerge.proto import master_pb2 as pb

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

_WIDE = frozenset(
    {
        FieldDescriptor.TYPE_INT64,
        FieldDescriptor.TYPE_UINT64,
        FieldDescriptor.TYPE_SINT64,
        FieldDescriptor.TYPE_FIXED64,
        FieldDescriptor.TYPE_SFIXED64,
    }
)


def to_value(message: Message) -> dict[str, Json]:
    """``message`` as a JSON object, fields in the order of the .proto file."""
    value: dict[str, Json] = {}
    for field in cast("Sequence[FieldDescriptor]", message.DESCRIPTOR.fields):
        if field.containing_oneof is not None and not message.HasField(field.name):
            continue
        content: object = getattr(message, field.name)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            value_field = field.message_type.fields_by_name["value"]
            entries = cast("Mapping[object, object]", content)
            value[field.json_name] = {str(key): _scalar(value_field, entries[key]) for key in sorted(entries, key=str)}
        elif field.is_repeated:
            value[field.json_name] = [_scalar(field, item) for item in cast("Sequence[object]", content)]
        elif field.message_type is not None and not message.HasField(field.name):
            value[field.json_name] = None
        else:
            value[field.json_name] = _scalar(field, content)
    return value


def _scalar(field: FieldDescriptor, content: object) -> Json:
    if isinstance(content, Message):
        return to_value(content)
    if field.enum_type is not None:
        return enum_word(field.enum_type.full_name, cast("int", content))
    if field.type in _WIDE:
        return str(content)
    if isinstance(content, float) and not math.isfinite(content):
        return "NaN" if math.isnan(content) else "Infinity" if content > 0 else "-Infinity"
    return cast("Json", content)


_CONTROLS = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters with which a terminal could be controlled, or the order of its characters be changed, and that JSON allows
as they are. They only occur within strings, where an escape is the same."""


def to_text(value: dict[str, Json], *, one_line: bool = False) -> str:
    """JSON text without a trailing newline: indented by 4 as DM does, or on one line for streams."""
    if one_line:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    else:
        text = json.dumps(value, ensure_ascii=False, indent=4)
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def query_status(response: pb.QueryStatusResponse, *, detail: bool) -> dict[str, Json]:
    """DM's two shapes: ``{result, msg, tasks}`` without a task name, else ``{result, msg, sources}``."""
    value = to_value(response)
    del value["tasks" if detail else "sources"]
    _clear_unknown(value)
    return value


NOT_RUNNING = "it does not run"
"""Why the lag of a subtask is not known, if its worker gives no reason."""

_NEEDS_KNOWN = ("bytesBehind", "lagMs", "oldestMs", "secondsBehindMaster")


def _clear_unknown(value: Json) -> None:
    """Make the figures ``null`` that are not known: those of every object with a reason in ``unknown``, and of a
    subtask that does not run (a worker of the previous version gives no reason)."""
    match value:
        case dict():
            sync = value.get("sync")
            if isinstance(sync, dict) and value.get("stage") in ("Paused", "Stopped"):
                sync.update(unknown=sync.get("unknown") or NOT_RUNNING, synced=False)
            if value.get("unknown"):
                value.update({name: None for name in _NEEDS_KNOWN if name in value})
            for part in value.values():
                _clear_unknown(part)
        case list():
            for part in value:
                _clear_unknown(part)
        case _:
            pass
