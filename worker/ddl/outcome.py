"""Describes what has become of a statement. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.ddl.decide.actions import Action, Create, Rename
from shardmerge.worker.ddl.decide.operator_override import OperatorOverride
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.rules.table_scope import TableName
from shardmerge.worker.unit.run_reports import DdlOutcome

TargetOf = Callable[[TableName], TargetTable | None]

_MOST_CHARACTERS = 2_000
_MOST_NAMES = 32
"""A statement may name thousands of tables."""


@dataclass(frozen=True, slots=True)
class ActedOn:
    """The actions of a statement: ``run`` at the target, ``skipped`` by event filters."""

    run: tuple[Action, ...] = ()
    skipped: tuple[Action, ...] = ()


def outcome_of(
    statement: Statement, acted_on: ActedOn, override: OperatorOverride | None, parked: int, target_of: TargetOf
) -> DdlOutcome:
    """``parked``: how many tables wait at the statement. ``target_of``: by the rules, for tables that are created."""
    text = " ".join(statement.text[:_MOST_CHARACTERS].split())
    actions = (*acted_on.run, *acted_on.skipped)
    form = text
    names = {part for action in actions[:_MOST_NAMES] for table in _names(action) for part in table}
    for name in sorted(names, key=len)[::-1][:_MOST_NAMES]:
        form = form.replace(name, "?")
    targets = {target.quoted for action in actions for target in _targets(action, target_of)}
    return DdlOutcome(text, form, str(statement.position), tuple(sorted(targets)), _result(acted_on, override, parked))


def _result(acted_on: ActedOn, override: OperatorOverride | None, parked: int) -> str:
    if override is not None:
        if override.runs_original:
            return "applied, after an operator's statements"
        return "replaced by an operator's statements" if override.texts else "skipped by an operator"
    if parked:
        return "parked: it waits for other shard tables"
    return "applied" if acted_on.run else "skipped by an event filter"


def _names(action: Action) -> Iterator[TableName]:
    match action:
        case Create(name=name):
            yield name
        case Rename(moves=moves):
            for shard, new_name in moves:
                yield shard.name
                yield new_name
        case _:
            yield action.shard.name


def _targets(action: Action, target_of: TargetOf) -> Iterator[TargetTable]:
    match action:
        case Create(name=name):
            target = target_of(name)
            if target is not None:
                yield target
        case Rename(moves=moves):
            for shard, _ in moves:
                yield shard.target
        case _:
            yield action.shard.target
