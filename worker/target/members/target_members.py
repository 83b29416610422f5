"""Which shard tables may have rows in a target table: from the records of all tasks and sources at the target."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from shardmerge.worker.core.mysql.connection import Session, quote_name, rows
from shardmerge.worker.core.mysql.consistent_read import consistent_read
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table_plan import PartitionId, TablePlan, TargetTable
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.transform_rules import Transforms
from shardmerge.worker.target.records import parked_tables, subtask_record
from shardmerge.worker.target.records.joining_tables import Joining
from shardmerge.worker.target.records.partitioning import Partitioning


@dataclass(frozen=True, slots=True)
class TargetMembers:
    """``own``: the subtask's own shard tables by number, including those that join or are parked. ``same_task``: those
    of the task's other sources. ``other_tasks``: those of other tasks. ``parked``: those of the task that are parked at
    sharding DDLs. ``unrecorded_sources``: the task's sources without any record."""

    own: Mapping[int, TablePlan]
    same_task: tuple[TablePlan, ...]
    other_tasks: tuple[TablePlan, ...]
    parked: tuple[TablePlan, ...]
    unrecorded_sources: tuple[str, ...]

    def owner_of(self, target: TargetTable, merged_id: int) -> TablePlan | None:
        """The shard table of ``target`` to which only the id belongs; None if there is none, or several."""
        found = {
            (plan.source, plan.table.full_name): plan
            for plan in self._merged_into(target)
            if any(
                isinstance(item.mapping, PartitionId)
                and not item.mapping.is_shared
                and item.mapping.prefix <= merged_id <= item.mapping.last
                for item in plan.columns
            )
        }
        return next(iter(found.values())) if len(found) == 1 else None

    def is_only_table(self, target: TargetTable) -> bool:
        """Whether the rows of ``target`` are those of one shard table, as far as tasks have merged them."""
        return len({(plan.source, plan.table.full_name) for plan in self._merged_into(target)}) == 1

    def _merged_into(self, target: TargetTable) -> list[TablePlan]:
        every = (*self.own.values(), *self.same_task, *self.other_tasks)
        return [plan for plan in every if plan.target == target]


def read_target_members(
    session: Session,
    who: SubtaskKey,
    expected: Iterable[str] = (),
    *,
    of_task_alone: bool = False,
    is_executor: bool = False,
) -> TargetMembers:
    """From one consistent read. ``session``: in no transaction. ``expected``: the task's sources, recorded or not.
    ``of_task_alone``: the records of other tasks are not read, and ``other_tasks`` is empty. ``is_executor``: the
    caller runs in a Spark executor, where transforms cannot be analysed: the plans are without them. Raises
    ``pymysql.MySQLError`` and the rules' errors."""
    with consistent_read(session):
        return _read_members(session, who, expected, of_task_alone=of_task_alone, is_executor=is_executor)


def _read_members(
    session: Session, who: SubtaskKey, expected: Iterable[str], *, of_task_alone: bool, is_executor: bool
) -> TargetMembers:
    own: Mapping[int, TablePlan] = {}
    same_task: list[TablePlan] = []
    other_tasks: list[TablePlan] = []
    parked: list[TablePlan] = []
    missing = {*expected} - {who.source}
    unrecorded: list[str] = []
    found = rows(
        session,
        f"SELECT `task`, `source`, `dealing`, `joining`, `meta_token` FROM {quote_name(who.schema)}.`subtask` "
        f"{'WHERE `task` = %s ' if of_task_alone else ''}ORDER BY `task`, `source`",
        (who.task,) if of_task_alone else (),
    )
    for its_task, its_source, partitioning, joining, token in found:
        its = SubtaskKey(who.schema, str(its_task), str(its_source))
        parked_here = parked_tables.read(session, its).keys()
        recorded, its_joining = Partitioning.from_json(str(partitioning)), Joining.from_json(str(joining))
        plans = subtask_plans(session, its, recorded, its_joining, parked_here, is_executor=is_executor)
        if its.task != who.task:
            other_tasks += plans.values()
            continue
        parked += (plans[number] for number in parked_here if number in plans)
        if its.source == who.source:
            own = plans
        else:
            missing.discard(its.source)
            same_task += plans.values()
            if not plans and not partitioning and str(token) != subtask_record.FORGOTTEN:
                unrecorded.append(its.source)
    return TargetMembers(own, tuple(same_task), tuple(other_tasks), tuple(parked), (*unrecorded, *sorted(missing)))


@dataclass(frozen=True, slots=True)
class OtherTable:
    """A shard table of another task."""

    task: str
    source: str
    table: str
    target: TargetTable


def tables_of_other_tasks(session: Session, who: SubtaskKey, targets: Collection[TargetTable]) -> list[OtherTable]:
    """The shard tables that other tasks merge into ``targets``, by the records of this moment, without those that the
    task of ``who`` merges itself. ``session``: in no transaction. Raises ``pymysql.MySQLError`` and the rules'
    errors."""
    schema, compiled = quote_name(who.schema), dict[str, Rules]()
    found: list[OtherTable] = []
    with consistent_read(session):
        numbers = {
            (str(task), str(source)): _recorded_numbers(str(partitioning), str(joining))
            for task, source, partitioning, joining in rows(
                session, f"SELECT `task`, `source`, `dealing`, `joining` FROM {schema}.`subtask`"
            )
        }
        parked = {
            (str(task), str(source), int(str(number)))
            for task, source, number in rows(session, f"SELECT `task`, `source`, `number` FROM {schema}.`parked_table`")
        }
        names = rows(
            session,
            f"SELECT `task`, `source`, `number`, `table_schema`, `table_name` FROM {schema}.`table_structure` "
            "ORDER BY `task`, `source`, `number`",
        )
    for task, source, number, *name in names:
        its = (str(task), str(source), int(str(number)))
        for partitioning, members in numbers.get(its[:2], ()):
            if its[2] not in members and its not in parked:
                continue
            if partitioning.rules not in compiled:
                compiled[partitioning.rules] = partitioning.compiled_rules()
            route = compiled[partitioning.rules].route(str(name[0]), str(name[1]))
            target = None if route is None else TargetTable(route.target_schema, route.target_table)
            if target in targets and target is not None:
                found.append(OtherTable(its[0], its[1], ".".join(map(str, name)), target))
    own = {(each.source, each.table, each.target) for each in found if each.task == who.task}
    return [each for each in found if (each.source, each.table, each.target) not in own]


def _recorded_numbers(partitioning: str, joining: str) -> list[tuple[Partitioning, frozenset[int]]]:
    """The records by which shard tables take part, with the numbers of these."""
    recorded, its_joining = Partitioning.from_json(partitioning), Joining.from_json(joining)
    found = [] if recorded is None else [(recorded, recorded.shards)]
    return found if its_joining is None else [*found, (its_joining.partitioning, its_joining.numbers)]


def subtask_plans(
    session: Session,
    who: SubtaskKey,
    partitioning: Partitioning | None,
    joining: Joining | None,
    parked: Collection[int],
    *,
    is_executor: bool = False,
) -> dict[int, TablePlan]:
    """The shard tables of one subtask by number, whichever stream applies their rows now. ``is_executor``: see
    :func:`read_target_members`. Raises ``pymysql.MySQLError`` and the rules' errors."""
    if partitioning is None:
        return {}
    source = who.source
    tables = subtask_record.read_tables(session, who)
    numbers = partitioning.shards.union(parked)
    plans = list(partitioning.plans_of(numbers, _rules(partitioning, is_executor), source, tables))
    if joining is not None:
        rules = _rules(joining.partitioning, is_executor)
        plans += joining.partitioning.plans_of(joining.numbers, rules, source, tables)
    return {plan.shard: plan for plan in plans}


def _rules(partitioning: Partitioning, is_executor: bool) -> Rules:
    rules = partitioning.compiled_rules()
    return replace(rules, transforms=Transforms()) if is_executor else rules
