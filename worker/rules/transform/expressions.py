"""The expressions that the Spark tasks of a run may evaluate: those of the plans that its driver gave to them.

A task names expressions by an identifier. A caller can therefore evaluate only what the driver itself has compiled.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from shardmerge.worker.core.table_plan import ComputedValue, TablePlan
from shardmerge.worker.rules.transform.values import ROW, arrow_type


@dataclass(frozen=True, slots=True)
class Expressions:
    """The expressions of one table's transform.

    ``given``: the columns that the expressions use, each with its Arrow type as text. ``items``: items of a SELECT list
    in Spark SQL, each for one column. ``filter``: a condition in Spark SQL, "" for none. ``schema``: of the rows.
    """

    inputs: tuple[tuple[str, str], ...]
    items: tuple[str, ...]
    filter: str
    schema: pa.Schema

    @property
    def identifier(self) -> bytes:
        """The SHA-256 over the columns, the items and the filter."""
        return _identifier(self.inputs, self.items, self.filter)


@lru_cache(maxsize=1024)
def _identifier(given: tuple[tuple[str, str], ...], items: tuple[str, ...], condition: str) -> bytes:
    return hashlib.sha256(json.dumps([given, items, condition]).encode()).digest()


def expressions_of(plan: TablePlan) -> Expressions | None:
    """The expressions of the plan's transform; None when there are none to evaluate. Pure."""
    if plan.transform is None or plan.transform.python is not None:
        return None
    items = tuple(column.mapping.item for column in plan.columns if isinstance(column.mapping, ComputedValue))
    if not items and not plan.transform.filter:
        return None
    columns = [plan.table.columns[at] for at in plan.transform.inputs]
    fields = [pa.field(ROW, pa.int32()), *(pa.field(column.name, arrow_type(column)) for column in columns)]
    given = tuple((field.name, str(field.type)) for field in fields)
    return Expressions(given, items, plan.transform.filter, pa.schema(fields))


class RunExpressions:
    """The expressions that a run's driver has compiled, kept until the run ends. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[bytes, Expressions] = {}

    def admit(self, plans: Iterable[TablePlan]) -> None:
        """Let tasks evaluate the expressions of ``plans``. Call it before a task receives the plans."""
        found = [made for plan in plans if (made := expressions_of(plan)) is not None]
        with self._lock:
            self._known.update((made.identifier, made) for made in found)

    def find(self, identifier: bytes) -> Expressions | None:
        with self._lock:
            return self._known.get(identifier)
