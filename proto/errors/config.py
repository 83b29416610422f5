"""Configuration and rules errors: codes 10001–11999."""

from __future__ import annotations

from functools import partial

from proto.errors.spec import Level, Scope, define

_define = partial(define, error_class="config")

ID_OVERFLOW = _define(
    11001,
    "id-overflow",
    scope=Scope.SOURCE,
    message="source {source}: {schema}.{table}.{column} = {value} does not fit the {bits} bits that "
    "`partition id` leaves for the original id",
    workaround="Widen the original id by giving \"\" for an unused part of the mapping's arguments, or "
    "leave the table out of the task; nothing was written for this row.",
)
