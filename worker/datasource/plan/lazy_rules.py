"""Rules that are unpickled when they are first used: Spark's tasks rarely need them, and their modules take long to
import."""

from __future__ import annotations

import pickle
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardmerge.worker.rules import Rules


class LazyRules:
    """The rules of one source."""

    def __init__(self, rules: Rules) -> None:
        self._pickled = pickle.dumps(rules)

    def __repr__(self) -> str:
        return "LazyRules"

    @property
    def rules(self) -> Rules:
        return _unpickled(self._pickled)


@lru_cache(maxsize=64)
def _unpickled(pickled: bytes) -> Rules:
    rules: Rules = pickle.loads(pickled)  # noqa: S301 - made by this process or by the driver
    return rules
