"""Where a subtask's streams stand by its records, and what is recorded of them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from worker.ddl.passing import TablesStanding
from worker.ddl.records import StatementPlace
from worker.ddl.tables import TableName, TableScope
from worker.join.record import Joining
from worker.plan import TablePlan
from worker.replicate.checkpoint import Checkpoint
from worker.replicate.dealing import Dealing
from worker.rules import Rules
from worker.table import Table


def others_of(tables: tuple[Table, ...], joining: Joining | None, parked: Iterable[int]) -> frozenset[TableName]:
    """The tables that are not the subtask's own lanes' affair: those that join, and those that wait."""
    joins = joining.names(tables) if joining is not None else frozenset[TableName]()
    return joins | {_name(tables[number]) for number in parked}


def taking_part(dealing: Dealing | None, joining: Joining | None, parked: Iterable[int]) -> frozenset[int]:
    """Numbers of the subtask's shard tables, whichever stream their rows go by, or none. All as of one moment: a table
    goes from one of these records to another in one transaction."""
    own = dealing.shards if dealing is not None else frozenset[int]()
    joins = joining.numbers if joining is not None else frozenset[int]()
    return own | joins | frozenset(parked)


def own_shards(tables: tuple[Table, ...], dealing: Dealing, others: Collection[TableName]) -> frozenset[int]:
    """Numbers of those that are. A table that moves to another target joins under a new number: the old one takes no
    part any more."""
    return frozenset(at for at in dealing.shards if _name(tables[at]) not in others)


def standing_of(
    joining: Joining, rules: Rules, tables: tuple[Table, ...], plans: Mapping[int, TablePlan]
) -> TablesStanding:
    """Of the joining tables' stream, as it is recorded. ``plans``: at least of those that join, by number."""
    numbers = joining.dealing.shards
    return TablesStanding(
        tables,
        {number: plan for number, plan in plans.items() if number in numbers},
        joining.dealing,
        TableScope(rules, only=frozenset(_name(tables[number]) for number in numbers)),
        frozenset(_name(tables[entry.number]) for entry in joining.entries),
    )


def joining_at(joining: Joining, standing: TablesStanding, tables: tuple[Table, ...]) -> Joining:
    """What is recorded of ``joining`` where its stream is at ``standing``."""
    left = tuple(entry for entry in joining.entries if _name(tables[entry.number]) in standing.entering)
    return replace(joining, dealing=standing.dealing, entries=left)


def is_one_place(found: Iterable[Checkpoint]) -> bool:
    """Whether all these lanes stand at one place: only there may the lanes of one stream take over another's tables."""
    return len({(item.relay_id, item.offset, item.skip_events) for item in found}) == 1


def lies_behind(found: Iterable[Checkpoint], passed: Iterable[StatementPlace | None]) -> bool:
    """Whether the lanes stand behind every statement that their streams have passed. A checkpoint right before one does
    not tell on which side of it its stream is: of two streams there, each may be on another. ``passed``: the last of
    each stream. That is so where the relay log has lost its end since, or another begins there."""
    return all(place is None or place.lies_before(item.position) for item in found for place in passed)


def _name(table: Table) -> TableName:
    return table.schema, table.name
