"""Reads what the lock agent needs from the target's records of a subtask's shard tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.rules import same_route
from shardmerge.worker.target.members.member_cache import MemberCache, TaskMembers
from shardmerge.worker.target.records.executed_locks import LockRun
from shardmerge.worker.target.records.joining_tables import member_numbers
from shardmerge.worker.target.records.parked_tables import Parked


@dataclass(frozen=True, slots=True)
class LockInputs:
    """``plans``: of all the source's shard tables that take part, by number. ``runs``: by target. ``members``: the
    shard tables of all sources of the task."""

    plans: Mapping[int, TablePlan]
    creations: Mapping[int, CreateStatement]
    parked: Mapping[int, Parked]
    runs: Mapping[TargetTable, LockRun]
    members: TaskMembers

    def without_parked(self, departing: Callable[[], frozenset[int]]) -> LockInputs:
        """Without the statements of tables whose rows the lanes still apply, and without tables that are parked only
        until the rest of their history is copied."""
        numbers = departing() | {at for at, item in self.parked.items() if item.resumes_copy}
        if not numbers:
            return self
        return replace(self, parked={at: item for at, item in self.parked.items() if at not in numbers})


class LockInputsReader:
    """Reads the lock inputs of one source in one run. For one thread."""

    def __init__(self, source: str, rules: Rules, members: MemberCache) -> None:
        self._source, self._rules, self._members = source, rules, members
        self._before: tuple[str, Rules] | None = None
        self._plans: dict[int, tuple[Table, TablePlan | None]] = {}

    def read(self, session: Session) -> LockInputs:
        """From one consistent read. ``session``: in no transaction. Raises ``pymysql.MySQLError`` and the rules'
        errors."""
        found = self._members.read(session)
        mine = found.sources.get(self._source)
        if mine is None:
            return LockInputs({}, {}, {}, found.runs, found)
        partitioning, joining, tables = mine.partitioning, mine.joining, mine.tables
        numbers = member_numbers(partitioning, joining, mine.parked)
        if partitioning is not None:
            # Until the lanes are repartitioned after an update, the record has tables that the update removes.
            if self._before is None or self._before[0] != partitioning.rules:
                self._before = partitioning.rules, partitioning.compiled_rules()
                self._plans.clear()
            coming = joining.numbers if joining is not None and not joining.replays else frozenset[int]()
        else:
            coming = numbers
        plans = {
            number: plan
            for number in sorted(numbers)
            if (plan := self._plan(number, tables[number], is_coming=number in coming)) is not None
        }
        parked = {at: item for at, item in mine.parked.items() if at in plans}
        return LockInputs(plans, mine.creations, parked, found.runs, found)

    def _plan(self, number: int, table: Table, *, is_coming: bool) -> TablePlan | None:
        """None: the table's rows no longer go where they went."""
        known = self._plans.get(number)
        if known is not None and known[0] is table and not is_coming:
            return known[1]
        stays = is_coming or self._before is None or same_route(table, self._before[1], self._rules)
        plan = self._rules.plan(number, self._source, table) if stays else None
        if not is_coming:
            self._plans[number] = table, plan
        return plan
