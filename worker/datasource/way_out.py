"""Adds the way out to an error: Spark shows the text and the notes of an exception."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from shardmerge.proto.errors import ShardmergeError


@contextmanager
def way_out_shown() -> Generator[None]:
    """Other classes of errors have ways out for operators of tasks, which do not apply here."""
    try:
        yield
    except ShardmergeError as error:
        if error.spec.error_class == "read":
            error.add_note(error.workaround)
        raise
