"""A log event as one line of JSON without secrets, statements and texts of unknown exceptions. Pure.

Fields are left out by their names and types, never by a search in their texts: what is not known to be harmless is not
kept. The log itself has everything.
"""

from __future__ import annotations

import json
import logging
import traceback
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import PurePath
from types import CodeType, TracebackType
from typing import cast

from shardmerge.proto.config.document.masking import MASK, is_secret_name
from shardmerge.proto.diagnostics.row_values import LEFT_OUT, field_without_values, without_values
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.escaped_text import escaped

_MOST_CHARS = 1000
"""Of one field."""
_MOST_LINE_CHARS = 6000
_MOST_FIELDS = 30
_MOST_CAUSES = 5
_MOST_FRAMES = 40
_STATEMENTS = frozenset({"statement", "statements", "sql", "sqls", "ddl", "ddls", "query", "row", "rows_text"})
_EXCEPTIONS = frozenset({"exc_info", "exception", "stack_info", "stack"})

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


def line_of_event(event: Mapping[str, object], found: BaseException | None) -> str:
    """``event``: the fields of a structured log event; ``found``: the exception that is being handled, for
    ``exc_info=True``."""
    fields: dict[str, object] = {}
    for key, value in event.items():
        if key not in _EXCEPTIONS:
            fields[key] = _shown(key, value)
        if len(fields) == _MOST_FIELDS:
            break
    error = _exception(event.get("exc_info"), found)
    if error is not None:
        fields["exception"] = list(_causes(error))
    return _line(fields)


def line_of_record(record: logging.LogRecord) -> str:
    """The line of a library's message: level, logger and place. Its text has no structure, so it is left out."""
    fields: dict[str, object] = {
        "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
        "level": record.levelname.lower(),
        "event": LEFT_OUT,
        "logger": _cut(record.name),
        "place": f"{short_path(record.pathname)}:{record.lineno} {record.funcName}",
    }
    if record.exc_info and record.exc_info[1] is not None:
        fields["exception"] = list(_causes(record.exc_info[1]))
    return _line(fields)


def short_path(path: str) -> str:
    """The path of a source file from its package on."""
    parts = PurePath(path).parts
    for mark in ("site-packages", "dist-packages"):
        if mark in parts:
            return "/".join(parts[parts.index(mark) + 1 :])
    if "shardmerge" in parts[:-1]:
        return "/".join(parts[parts.index("shardmerge") :])
    return "/".join(parts[-3:])


def shown_frame(code: CodeType, line: int) -> str:
    """One line for a frame: file, line, function. It has no values."""
    return f"{short_path(code.co_filename)}:{line} {code.co_qualname}"


def _shown(key: str, value: object) -> object:
    if is_secret_name(key) and value:
        return MASK
    if key.lower() in _STATEMENTS:
        return LEFT_OUT
    if isinstance(value, ShardmergeError):
        return _cut(str(without_values(value)))
    if isinstance(value, str):
        return _cut(field_without_values(key, value))
    if value is None or isinstance(value, bool | int | float):
        return value
    return f"({type(value).__name__})"


def _exception(given: object, found: BaseException | None) -> BaseException | None:
    if isinstance(given, BaseException):
        return given
    if isinstance(given, tuple):
        return cast("ExcInfo", given)[1]
    return found if given else None


def _causes(error: BaseException) -> Iterator[dict[str, object]]:
    """The exception and its causes: types and frames; the text only of errors of the catalogue."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen and len(seen) < _MOST_CAUSES:
        seen.add(id(at))
        # Not extract_tb, which reads the source files.
        frames = islice(traceback.walk_tb(at.__traceback__), _MOST_FRAMES)
        yield {
            "type": type(at).__name__,
            "text": _cut(str(without_values(at))) if isinstance(at, ShardmergeError) else LEFT_OUT,
            "frames": [shown_frame(frame.f_code, line) for frame, line in frames],
        }
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)


def _cut(text: str) -> str:
    return escaped(text, _MOST_CHARS)


def _line(fields: Mapping[str, object]) -> str:
    line = json.dumps(fields, ensure_ascii=False, separators=(",", ":"), default=str)
    if len(line) <= _MOST_LINE_CHARS:
        return line
    kept = {key: fields[key] for key in ("timestamp", "level", "event") if key in fields}
    return json.dumps({**kept, "cut": len(line)}, ensure_ascii=False, separators=(",", ":"), default=str)
