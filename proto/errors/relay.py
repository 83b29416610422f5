"""Source connection and relay errors: codes 20001–20999."""

from __future__ import annotations

from functools import partial

from proto.errors.spec import Level, Scope, define

_define = partial(define, error_class="relay")

