"""What the tasks of a run may ask to be evaluated: the expressions of plans that its driver has handed to them.

A task names expressions by an identifier. Whoever can send a question can therefore have nothing evaluated but what the
driver itself has compiled.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from worker.plan import Computed, TablePlan
from worker.transform.values import ROW, arrow_type


@dataclass(frozen=True, slots=True)
class Expressions:
    """Of one table's transform. ``given``: the columns that they name, each with its Arrow type as text; ``items``: of
    a SELECT list in Spark SQL, each of one column; ``filter``: a condition in it, "" for none; ``schema``: of the rows
    that they are evaluated over."""

    given: tuple[tuple[str, str], ...]
    items: tuple[str, ...]
    filter: str
    schema: pa.Schema

    @property
    def identifier(self) -> bytes:
        """The SHA-256 of everything that says what is evaluated."""
        return _identifier(self.given, self.items, self.filter)


@lru_cache(maxsize=1024)
def _identifier(given: tuple[tuple[str, str], ...], items: tuple[str, ...], condition: str) -> bytes:
    return hashlib.sha256(json.dumps([given, items, condition]).encode()).digest()


def expressions_of(plan: TablePlan) -> Expressions | None:
    """Those of the plan's transform; None where it has none to evaluate. Pure."""
    if plan.transform is None:
        return None
    items = tuple(column.mapping.item for column in plan.columns if isinstance(column.mapping, Computed))
    if not items and not plan.transform.filter:
        return None
    columns = [plan.table.columns[at] for at in plan.transform.given]
    fields = [pa.field(ROW, pa.int32()), *(pa.field(column.name, arrow_type(column)) for column in columns)]
    given = tuple((field.name, str(field.type)) for field in fields)
    return Expressions(given, items, plan.transform.filter, pa.schema(fields))


class Compiled:
    """The expressions that a run's driver has compiled. Several threads at a time; it lives as long as the run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[bytes, Expressions] = {}

    def admit(self, plans: Iterable[TablePlan]) -> None:
        """Tasks may ask for those of ``plans`` from here on: to be called before any task can have them."""
        found = [made for plan in plans if (made := expressions_of(plan)) is not None]
        with self._lock:
            self._known.update((made.identifier, made) for made in found)

    def find(self, identifier: bytes) -> Expressions | None:
        with self._lock:
            return self._known.get(identifier)
