"""Whose rows a target table may hold: the shard tables of all tasks, of all their sources, by their records there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from worker import meta
from worker.connection import Session, quote_name, rows
from worker.ddl import parked
from worker.join.record import Joining
from worker.moment import one_moment
from worker.plan import TablePlan
from worker.replicate.dealing import Dealing


@dataclass(frozen=True, slots=True)
class Everyone:
    """``mine``: the subtask's own shard tables by number, also those that join or wait; ``others``: those of the task's
    other sources; ``foreign``: those of other tasks. ``waiting``: those of the task that wait before sharding DDLs.
    ``silent``: the task's sources of which nothing is recorded."""

    mine: Mapping[int, TablePlan]
    others: tuple[TablePlan, ...]
    foreign: tuple[TablePlan, ...]
    waiting: tuple[TablePlan, ...]
    silent: tuple[str, ...]


def everyone(session: Session, meta_schema: str, task: str, source: str, expected: Iterable[str] = ()) -> Everyone:
    """As of one moment. ``session``: in no transaction. ``expected``: sources that the task has, recorded or not.
    Raises ``pymysql.MySQLError``, the rules' errors."""
    with one_moment(session):
        return _everyone(session, meta_schema, task, source, expected)


def _everyone(session: Session, meta_schema: str, task: str, source: str, expected: Iterable[str]) -> Everyone:
    mine: Mapping[int, TablePlan] = {}
    others: list[TablePlan] = []
    foreign: list[TablePlan] = []
    waiting: list[TablePlan] = []
    missing = {*expected} - {source}
    silent: list[str] = []
    found = rows(
        session,
        f"SELECT `task`, `source`, `dealing`, `joining` FROM {quote_name(meta_schema)}.`subtask` "
        "ORDER BY `task`, `source`",
    )
    for its_task, its_source, dealing, joining in found:
        who = meta_schema, str(its_task), str(its_source)
        parked_here = parked.read(session, *who).keys()
        plans = _plans(session, who, Dealing.from_json(str(dealing)), Joining.from_json(str(joining)), parked_here)
        if who[1] != task:
            foreign += plans.values()
            continue
        waiting += (plans[number] for number in parked_here if number in plans)
        if who[2] == source:
            mine = plans
        else:
            missing.discard(who[2])
            others += plans.values()
            if not plans and not dealing:
                silent.append(who[2])
    return Everyone(mine, tuple(others), tuple(foreign), tuple(waiting), (*silent, *sorted(missing)))


def _plans(
    session: Session,
    who: tuple[str, str, str],
    dealing: Dealing | None,
    joining: Joining | None,
    waiting: Collection[int],
) -> dict[int, TablePlan]:
    """Of one subtask, by number: whoever has begun, whichever stream its rows go by now."""
    if dealing is None:
        return {}
    source = who[2]
    tables = meta.read_tables(session, *who)
    numbers = dealing.shards.union(waiting)
    plans = list(dealing.plans_of(numbers, dealing.compiled_rules(), source, tables))
    if joining is not None:
        plans += joining.dealing.plans_of(joining.numbers, joining.dealing.compiled_rules(), source, tables)
    return {plan.shard: plan for plan in plans}
