"""Decides which rows of an earlier run start-task --remove-meta removes before the copy begins again. Pure.

Only rows that surely are this subtask's own are removed: those in the `partition id` range of a shard table. The copy
must write the same range again. Otherwise the range may be another shard table's by now, or rows would stay twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from shardmerge.worker.core.table_plan import PartitionId, TablePlan
from shardmerge.worker.rules import Rules
from shardmerge.worker.target.tables.row_ownership import KeyRange


@dataclass(frozen=True, slots=True)
class Removable:
    """Rows that only the shard table of ``plan`` has written, and that its copy writes again."""

    plan: TablePlan
    rows: KeyRange


@dataclass(frozen=True, slots=True)
class Unremovable:
    """``rows``: None if the rows cannot be identified. ``why``: for people."""

    plan: TablePlan
    rows: KeyRange | None
    why: str


@dataclass(frozen=True, slots=True)
class EarlierRows:
    removable: tuple[Removable, ...] = ()
    unremovable: tuple[Unremovable, ...] = ()


def earlier_rows(own: Iterable[TablePlan], others: Sequence[TablePlan], rules: Rules) -> EarlierRows:
    """``own``: the subtask's shard tables with the rules by which the earlier run wrote them. ``others``: those of all
    other sources and tasks. ``rules``: those of the run that begins. A shard table that these leave out, or route to
    another target, keeps its rows, as after update-task. Raises the rules' errors."""
    own = tuple(own)
    separate = _separate_targets((*own, *others))
    removable: list[Removable] = []
    unremovable: list[Unremovable] = []
    for plan in own:
        route = rules.route(plan.table.schema, plan.table.name)
        if route is None or (route.target_schema, route.target_table) != (plan.target_schema, plan.target_table):
            continue
        found = _range(plan)
        if found is None:
            why = f"no `partition id` separates the rows of {plan.table.full_name} from those of other shard tables"
        elif not separate[plan.target_name]:
            why = f"other shard tables may have rows in the range of {plan.table.full_name}"
        elif plan.may_lack_rows:
            why = (
                f"filters of {plan.table.full_name} may have kept rows that the source no longer has, which no copy "
                "brings back"
            )
        elif _range(rules.plan(plan.shard, plan.source, plan.table)) != found:
            why = f"the column mapping of {plan.table.full_name} has changed since its rows were written"
        else:
            removable.append(Removable(plan, found))
            continue
        unremovable.append(Unremovable(plan, found, why))
    return EarlierRows(tuple(removable), tuple(unremovable))


def _range(plan: TablePlan) -> KeyRange | None:
    for item in plan.columns:
        # A NULL is in no range. Columns of several shard tables may refer to ids of one range.
        if isinstance(item.mapping, PartitionId) and not item.mapping.is_shared and not item.column.nullable:
            return KeyRange(item.target_name, item.mapping.prefix, item.mapping.last)
    return None


def _separate_targets(plans: Iterable[TablePlan]) -> Mapping[str, bool]:
    """By target: whether each of its shard tables has a range of one column that no other one has."""
    ranges: dict[str, list[KeyRange | None]] = {}
    for plan in plans:
        ranges.setdefault(plan.target_name, []).append(_range(plan))
    return {target: _are_separate(found) for target, found in ranges.items()}


def _are_separate(ranges: Sequence[KeyRange | None]) -> bool:
    known = [one for one in ranges if one is not None]
    places = sorted((one.first, one.last) for one in known)
    return (
        len(known) == len(ranges)
        and len({one.column for one in known}) == 1
        and all(one[1] < next_one[0] for one, next_one in pairwise(places))
    )
