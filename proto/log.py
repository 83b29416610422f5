"""Structured logs: one line per event that matters, as JSON or as text for a terminal.

Never pass a password or a connection's arguments to a logger.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

Logger = structlog.stdlib.BoundLogger

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}


def configure(program: str, level: str = "info", fmt: str = "text") -> None:
    """Set up logging of a daemon: ``level`` debug|info|warn|error, ``fmt`` text|json, to stderr.

    Libraries stay at warning: mysql-replication prints passwords at info.
    """
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(name)s %(message)s")
    renderer: Any = (
        structlog.processors.JSONRenderer() if fmt == "json" else structlog.dev.ConsoleRenderer(colors=False)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.bind_contextvars(program=program)


def get_logger(**bound: object) -> Logger:
    """A logger with fields every line carries: source, task, table, position."""
    return structlog.get_logger(**bound)
