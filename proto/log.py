"""Structured logs: one line per event that matters, as JSON or as text for a terminal.

Never pass a password or a connection's arguments to a logger.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Mapping, MutableMapping
from pathlib import Path
from typing import IO, Any, Protocol

import structlog

from shardmerge.proto.errors import config
from shardmerge.proto.escaped_text import escaped, has_controls
from shardmerge.proto.files.durable_file import private_text
from shardmerge.proto.tracing.operation import present_operation

Logger = structlog.stdlib.BoundLogger

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
}


class Keeper(Protocol):
    """Keeps a part of the log in memory. Thread-safe, and quick."""

    def keep(self, event: Mapping[str, object]) -> None:
        """Called with every event that is logged, before exceptions become text."""
        ...

    def keep_record(self, record: logging.LogRecord) -> None:
        """Called with every message of a library."""
        ...


class LogFile:
    """Appends lines to a file. When the file was moved away or removed, as logrotate does, it opens a new one.

    A line that cannot be written goes to stderr: a full disk does not stop a daemon.
    """

    def __init__(self, path: Path) -> None:
        """Raises OSError."""
        self._path = path
        self._lock = threading.Lock()
        self._file = self._opened()

    def write(self, text: str) -> int:
        with self._lock:
            try:
                if self._moved():
                    self._file.close()
                    self._file = self._opened()
                self._file.write(text)
            except (OSError, ValueError):
                sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        """Every line is written at once."""

    def _opened(self) -> IO[str]:
        return private_text(self._path, append=True)

    def _moved(self) -> bool:
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return True
        here = os.fstat(self._file.fileno())
        return (found.st_dev, found.st_ino) != (here.st_dev, here.st_ino)


def configure(
    program: str, level: str = "info", fmt: str = "text", file: str = "", keeper: Keeper | None = None
) -> None:
    """Set up logging of a daemon: ``level`` debug|info|warn|error|fatal, ``fmt`` text|json, to ``file`` or stderr.
    ``keeper``: also gets every event.

    Libraries stay at warning: mysql-replication prints passwords at info. Raises ``config.LOG_FILE``.
    """
    try:
        stream: Any = LogFile(Path(file)) if file else sys.stderr
    except OSError as error:
        raise config.LOG_FILE(file=file, reason=error.strerror or "input/output error") from error
    logging.basicConfig(level=logging.WARNING, stream=stream, format="%(asctime)s %(name)s %(message)s", force=True)
    if keeper is not None:
        logging.getLogger().addHandler(_LibraryHandler(keeper))
    renderer: Any = (
        structlog.processors.JSONRenderer() if fmt == "json" else structlog.dev.ConsoleRenderer(colors=False)
    )
    structlog.configure(
        processors=[
            _with_program(program),
            _with_operation,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _on_one_line,
            *([] if keeper is None else [_kept_by(keeper)]),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )


def _with_program(program: str) -> structlog.typing.Processor:
    """Add the program's name to the lines of every thread."""

    def add(_logger: object, _level: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        event["program"] = program
        return event

    return add


def _with_operation(_logger: object, _level: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the id of the operation that the thread carries out."""
    operation = present_operation()
    if operation is not None:
        event.setdefault("operation", operation.id)
    return event


def _kept_by(keeper: Keeper) -> Any:
    def keep(_logger: object, _level: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        keeper.keep(event)
        return event

    return keep


class _LibraryHandler(logging.Handler):
    def __init__(self, keeper: Keeper) -> None:
        super().__init__(logging.WARNING)
        self._keeper = keeper

    def emit(self, record: logging.LogRecord) -> None:
        self._keeper.keep_record(record)


def _on_one_line(_logger: object, _level: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Keep a name or a statement from outside on one line: a line break would make it look like our own line."""
    for key, value in event.items():
        if isinstance(value, str) and has_controls(value):
            event[key] = escaped(value)
    return event


def get_logger(**bound: object) -> Logger:
    """A logger with fields that every line has: source, task, table, position."""
    return structlog.get_logger(**bound)
