"""Worker and Spark errors: codes 70001–70999."""

from __future__ import annotations

from functools import partial

from proto.errors.spec import Level, Scope, define

_define = partial(define, error_class="worker")

