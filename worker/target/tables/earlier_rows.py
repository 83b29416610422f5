"""Decides which rows of an earlier run start-task --remove-meta removes before the copy begins again. Pure.

Only rows that surely are this subtask's own are removed: those in the `partition id` range of a shard table, or else
those with the texts that a route extracts from its names, where no other shard table of the target has the same. The
copy must write the same range or texts again. Otherwise they may be another shard table's by now, or rows would stay
twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from shardmerge.worker.core.table_plan import PartitionId, TablePlan
from shardmerge.worker.rules import Rules
from shardmerge.worker.target.tables.extracted_keys import extracted_texts
from shardmerge.worker.target.tables.row_ownership import ExtractedTexts, KeyRange, by_texts


@dataclass(frozen=True, slots=True)
class Removable:
    """Rows that only the shard table of ``plan`` has written, and that its copy writes again."""

    plan: TablePlan
    rows: KeyRange | ExtractedTexts


@dataclass(frozen=True, slots=True)
class Unremovable:
    """``rows``: None if the rows cannot be identified. ``why``: for people."""

    plan: TablePlan
    rows: KeyRange | ExtractedTexts | None
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
    merged: dict[str, list[TablePlan]] = {}
    for plan in (*own, *others):
        merged.setdefault(plan.target_name, []).append(plan)
    separate = {target: _are_separate([_range(plan) for plan in plans]) for target, plans in merged.items()}
    removable: list[Removable] = []
    unremovable: list[Unremovable] = []
    for plan in own:
        route = rules.route(plan.table.schema, plan.table.name)
        if route is None or (route.target_schema, route.target_table) != (plan.target_schema, plan.target_table):
            continue
        found = _range(plan)
        is_known = separate[plan.target_name]
        if not is_known:
            texts = by_texts(plan, merged[plan.target_name])
            is_known, found = (True, texts) if isinstance(texts, ExtractedTexts) else (False, found)
        if found is None:
            why = (
                f"neither `partition id` nor the texts of extracted columns separate the rows of "
                f"{plan.table.full_name} from those of other shard tables"
            )
        elif not is_known:
            why = f"other shard tables may have rows in the range of {plan.table.full_name}"
        elif plan.may_lack_rows:
            why = (
                f"filters of {plan.table.full_name} may have kept rows that the source no longer has, which no copy "
                "brings back"
            )
        elif not _is_written_again(found, rules.plan(plan.shard, plan.source, plan.table)):
            why = (
                f"the column mapping or the extracted columns of {plan.table.full_name} have changed since its rows "
                "were written"
            )
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


def _is_written_again(rows: KeyRange | ExtractedTexts, plan: TablePlan) -> bool:
    """Whether ``plan`` writes the rows into the same range, or with the same texts."""
    if isinstance(rows, KeyRange):
        return _range(plan) == rows
    return extracted_texts(plan).items() >= dict(rows.values).items()


def _are_separate(ranges: Sequence[KeyRange | None]) -> bool:
    """Whether each shard table of a target has a range of one column that no other one has."""
    known = [one for one in ranges if one is not None]
    places = sorted((one.first, one.last) for one in known)
    return (
        len(known) == len(ranges)
        and len({one.column for one in known}) == 1
        and all(one[1] < next_one[0] for one, next_one in pairwise(places))
    )
