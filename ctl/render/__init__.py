"""Answers as tables for people.

What a command uses of this package is imported when it is first used: rich takes 0.1 s, and JSON does not need it.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardmerge.ctl.render import compare_table, definitions, rules_table, shard_ddl, status_table, tables

__all__ = ["compare_table", "definitions", "rules_table", "shard_ddl", "status_table", "tables"]


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return importlib.import_module(f"{__name__}.{name}")
