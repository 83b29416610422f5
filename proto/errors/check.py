"""Pre-check errors: codes 12001–12999."""

from __future__ import annotations

from functools import partial

from proto.errors.spec import Level, Scope, define

_define = partial(define, error_class="check")
UNSUPPORTED_COLUMN = _define(
    12010,
    "column-type-unsupported",
    scope=Scope.SOURCE,
    message="source {source}: {schema}.{table}.{column} has type {type}: {reason}",
    workaround="Change the column's type at the source, or leave the table out with the block-allow list.",
)
UNSUPPORTED_TABLE = _define(
    12011,
    "table-unsupported",
    scope=Scope.SOURCE,
    message="source {source}: {schema}.{table} cannot be merged: {reason}",
    workaround="Change the table at the source, or leave it out with the block-allow list.",
)
SOURCE_VERSION = _define(
    12001,
    "source-version-unsupported",
    scope=Scope.SOURCE,
    message="source {source}: server version {version} is not supported",
    workaround="Use MySQL 5.7 or newer, or MariaDB 10.2 or newer.",
)
UNTESTED_VERSION = _define(
    12002,
    "source-version-untested",
    scope=Scope.SOURCE,
    level=Level.LOW,
    message="source {source}: server version {version} is newer than what was tested",
    workaround="Nothing to do; compare the target after the copy.",
)
