"""The plans of a subtask: structures and rules together, with the facts of the merged target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from proto import errors
from worker.connection import Session
from worker.plan import TablePlan
from worker.replicate.checkpoint import Checkpoint
from worker.rules import Rules, check_partitions
from worker.schema import list_tables, read_tables
from worker.table import Table
from worker.target_table import ensure_target


def read_structures(session: Session, rules: Rules, source_id: str) -> tuple[Table, ...]:
    """The structures of every table the rules let through. Raises what :func:`read_tables` raises."""
    names = [(schema, name) for schema, name in list_tables(session) if rules.route(schema, name) is not None]
    return tuple(read_tables(session, names, source=source_id))


def make_plans(
    rules: Rules,
    source_id: str,
    tables: tuple[Table, ...],
    source: Session,
    target: Session,
    meta_schema: str,
) -> tuple[TablePlan, ...]:
    """One plan per table, its target made or checked. Raises the rules' and the target's coded errors."""
    plans = [rules.plan(shard, source_id, table) for shard, table in enumerate(tables)]
    check_partitions(plans)
    made: list[TablePlan] = []
    for _, group in groupby(sorted(plans, key=lambda plan: plan.target_name), key=lambda plan: plan.target_name):
        merged = list(group)
        facts = ensure_target(source, target, merged, meta_schema=meta_schema)
        made.extend(replace(plan, one_lane=facts.one_lane) for plan in merged)
    return tuple(sorted(made, key=lambda plan: plan.shard))


def keep_lanes(
    plans: tuple[TablePlan, ...], recorded: frozenset[str], found: Sequence[Checkpoint]
) -> tuple[TablePlan, ...]:
    """The plans with the lanes that their checkpoints mean. Pure.

    ``recorded``: targets that kept to one lane when the checkpoints were written. One lane is always right, so
    those stay. A target that must keep to one lane now and did not may do so only while every lane stands at the
    same place: else its keys would change to a lane that is further, and what lies between would be lost.
    Raises LANES_MOVED.
    """
    kept = tuple(replace(plan, one_lane=plan.one_lane or plan.target_name in recorded) for plan in plans)
    moved = sorted({plan.target_name for plan in kept if plan.one_lane} - recorded)
    places = {(item.position.file, item.position.pos, item.skip_events) for item in found}
    if moved and len(places) > 1:
        raise errors.replicate.LANES_MOVED(source=plans[0].source, tables=", ".join(moved))
    return kept
