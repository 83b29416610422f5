"""Checks row filters for effects that their author may not expect."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from shardmerge.proto import config_pb2 as config
from shardmerge.proto import errors
from shardmerge.proto import worker_pb2 as pb
from shardmerge.worker.core.table_plan import Mapping, TablePlan
from shardmerge.worker.rules import Rules
from shardmerge.worker.verify.precheck.findings import Checklist, abbreviated, warned
from shardmerge.worker.verify.precheck.tables import TablesView, table_name

_ITEM = "filter_rules"


def check_filter_rules(
    checklist: Checklist, rules: Rules, tables: TablesView, others: Sequence[config.SubTaskConfig]
) -> None:
    """``others``: the subtasks of the task's other sources."""
    checklist.run(_ITEM, lambda: _filters(checklist.source, rules, tables, others))


def _filters(
    source: str, rules: Rules, tables: TablesView, others: Sequence[config.SubTaskConfig]
) -> Iterator[pb.CheckResult]:
    for rule in rules.expressions.rules:
        if not any(rule in rules.expressions.matching(*name) for name in tables.names):
            missing = f"{rule.schema}.{rule.table}"
            yield warned(
                _ITEM, source, errors.check_data.FILTER_WITHOUT_TABLE(source=source, rule=rule.name, table=missing)
            )
    elsewhere = [Rules.from_config(other) for other in others]
    by_target: dict[str, list[TablePlan]] = {}
    for plan in tables.plans:
        by_target.setdefault(plan.target_name, []).append(plan)
    for target, merged in by_target.items():
        risky = [
            plan
            for plan in merged
            if (plan.skipped_kinds or plan.filters) and plan.key and _may_meet(plan, merged, rules, elsewhere)
        ]
        if risky:
            names = abbreviated([table_name(plan.table) for plan in risky])
            found = errors.check_data.FILTERED_ROWS_SHARE_KEYS(source=source, tables=names, target=target)
            yield warned(_ITEM, source, found)


def _may_meet(plan: TablePlan, merged: Sequence[TablePlan], rules: Rules, elsewhere: Sequence[Rules]) -> bool:
    """Whether another shard table may have rows under the plan's keys. ``merged``: the target's, of this source."""
    if plan.own_keys:
        return False
    if any(other is not plan and _constants(other) == _constants(plan) for other in merged):
        return True
    chosen = rules.router.choose(plan.table.schema, plan.table.name)
    has_source_column = any(extract.of == "source" for rule in chosen.rules.best for extract in rule.extracts)
    return not has_source_column and any(_may_lead_to(other, plan) for other in elsewhere)


def _constants(plan: TablePlan) -> list[Mapping | None]:
    """The extracted columns' values, which all rows of the table share; they also distinguish rows of tables."""
    return [column.mapping for column in plan.columns if column.is_constant]


def _may_lead_to(rules: Rules, plan: TablePlan) -> bool:
    """Whether a table of another source may go to the plan's target."""
    target = plan.target.names
    if any(rule.may_lead_to(*target) for rule in rules.router.rules):
        return True
    return rules.judge(*target).passes and rules.router.keeps_name(*target)
