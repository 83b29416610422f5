"""The foreign keys by which the source's storage engine changes rows without logging the changes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from shardmerge.worker.core.sql.foreign_keys import ForeignKeyAction


@dataclass(frozen=True, slots=True)
class CascadeKey:
    """A foreign key of shard table number ``child`` to shard table number ``parent`` that changes rows by cascade.

    ``columns`` of the child refer to ``to_columns`` of the parent, in this order. It is recorded: see
    :class:`shardmerge.worker.target.records.partitioning.Partitioning`.
    """

    parent: int
    child: int
    name: str
    columns: tuple[str, ...]
    to_columns: tuple[str, ...]
    on_delete: ForeignKeyAction
    on_update: ForeignKeyAction


@dataclass(frozen=True)
class CascadeKeys:
    """All cascading keys of a subtask."""

    keys: tuple[CascadeKey, ...] = ()

    @cached_property
    def tables(self) -> frozenset[int]:
        """The numbers of the tables that change other tables by cascade, or are changed."""
        return frozenset(number for key in self.keys for number in (key.parent, key.child))

    @cached_property
    def children(self) -> frozenset[int]:
        """The numbers of the tables whose rows are changed by cascade."""
        return frozenset(key.child for key in self.keys)

    @cached_property
    def of_parent(self) -> Mapping[int, tuple[CascadeKey, ...]]:
        """The keys that refer to a table, by its number."""
        found: dict[int, tuple[CascadeKey, ...]] = {}
        for key in self.keys:
            found[key.parent] = (*found.get(key.parent, ()), key)
        return found

    def descendants(self, table: int) -> frozenset[int]:
        """``table``, and all tables whose rows may change because a row of it does."""
        found = {table}
        left = [table]
        while left:
            for key in self.of_parent.get(left.pop(), ()):
                if key.child not in found:
                    found.add(key.child)
                    left.append(key.child)
        return frozenset(found)

    def ancestors(self, table: int) -> frozenset[int]:
        """The other tables whose rows may change rows of ``table``."""
        return frozenset(number for number in self.tables if number != table and table in self.descendants(number))

    def in_order(self, tables: Iterable[int]) -> list[int]:
        """``tables``, each after the tables whose rows may change its own rows. Their cycles have one table only."""
        return sorted(tables, key=lambda number: (len(self.ancestors(number)), number))


def lane_groups(targets: Mapping[int, str], keys: Sequence[CascadeKey]) -> dict[str, str]:
    """The targets whose rows must be changed in the source's order, each with the name of its group: the first name in
    it. ``targets``: the targets of the tables of ``keys``, by number."""
    group: dict[str, str] = {}

    def first(name: str) -> str:
        while group[name] != name:
            name = group[name]
        return name

    for key in keys:
        if key.parent not in targets or key.child not in targets:
            continue
        names = (targets[key.parent], targets[key.child])
        for name in names:
            group.setdefault(name, name)
        low, high = sorted(map(first, names))
        group[high] = low
    return {name: first(name) for name in group}
