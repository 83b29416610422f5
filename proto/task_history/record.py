"""The stored form of an entry: bounded in size, and readable by versions that do not know all of it. Pure."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message

from shardmerge.proto import etcd_keys
from shardmerge.proto import state_pb2 as pb
from shardmerge.proto.task_history.event import HistoryEntry
from shardmerge.proto.task_history.secrets import without_secrets

VERSION = 1
"""A reader leaves out records of higher versions. A field that it does not know does not need one."""
MOST_BYTES = 2048
"""The largest value of an entry."""
_MARK = "…"
_CHARS = {
    "text": 400,
    "name": 100,
    "message": 700,
    "statement": 700,
    "target": 300,
    "position": 200,
    "actor": 200,
    "writer": 200,
    "incarnation": 64,
    "stage": 32,
}
"""The most characters of each text; what is longer is cut, with a mark."""
_LEAST_CHARS = 8
_MASKED = ("text", "message", "statement")
_READ_BEYOND = 1_000
"""Characters beyond the most of a text that are searched for secrets too: masks may shorten what is before them. More
are not, because the author of a statement decides how long it is."""

M = TypeVar("M", pb.HistoryRecord, pb.HistorySamplesRecord)


def cut(text: str, most: int) -> str:
    """``text``, or its first ``most`` characters with a mark as the last of them."""
    return text if len(text) <= most else text[: most - 1] + _MARK


def key_of(entry: HistoryEntry) -> str:
    """The entry's key in etcd."""
    return etcd_keys.history_entry(entry.event.task, entry.event.kind, entry.name)


def encode(entry: HistoryEntry, writer: str, incarnation: str) -> bytes:
    """The value of ``entry``, of at most :data:`MOST_BYTES`. ``writer``: kind and name of the process."""
    event = entry.event
    texts = {
        "text": event.text,
        "name": event.name,
        "message": event.message,
        "statement": event.statement,
        "target": event.target,
        "position": event.position,
        "actor": event.actor,
        "writer": writer,
        "incarnation": incarnation,
        "stage": event.stage,
    }
    record = pb.HistoryRecord(
        version=VERSION,
        kind=event.kind,
        sources=map(storable, event.sources),
        epoch=event.epoch,
        first=entry.first,
        last=event.at,
        count=entry.count,
        code=event.code,
        failed=event.failed,
        left_out=entry.left_out,
        operation=storable(event.operation),
    )
    for field, text in texts.items():
        setattr(record, field, _bounded(field, text))
    return _fitted(record)


def _bounded(field: str, text: str) -> str:
    """``text`` as it may be stored in ``field``."""
    most = _CHARS[field]
    if field not in _MASKED:
        return cut(storable(text), most)
    read = most + _READ_BEYOND
    is_cut = len(text) > read
    shown = without_secrets(storable(text[:read]), is_cut=is_cut)
    return cut(f"{shown}{_MARK}" if is_cut else shown, most)


def storable(text: str) -> str:
    """Without halves of characters, which a message cannot hold."""
    return text.encode("utf-8", "replace").decode()


def _fitted(record: pb.HistoryRecord) -> bytes:
    """A character may take six bytes: what is still too large gets shorter."""
    while len(value := etcd_keys.encode(record)) > MOST_BYTES:
        longest = max(_CHARS, key=lambda field: len(getattr(record, field)))
        chars = len(getattr(record, longest))
        if chars > _LEAST_CHARS:
            setattr(record, longest, cut(getattr(record, longest), chars // 2))
        elif record.sources:
            del record.sources[:]  # then it is of the whole task
        else:
            raise ValueError(f"an entry of {len(value)} bytes without texts")
    return value


def decode(kind: type[M], value: bytes) -> M | None:
    """A record of the history; None: it is of a higher version, or cannot be read. What such a record holds is shown,
    never acted on: so an unknown field is no error, unlike in all other records."""
    record = kind()
    if not _parsed(record, value) or record.version > VERSION:
        return None
    return record


def _parsed(record: Message, value: bytes) -> bool:
    try:
        json_format.Parse(value, record, ignore_unknown_fields=True)
    except (json_format.ParseError, UnicodeDecodeError):
        return False
    return True
