"""Compiles transform rules, which compute a table's columns by SQL over one row, or by a function in Python.

The most specific rule applies to a table, as for routes. Spark's analyzer determines the meaning of its text
(worker/rules/transform/analyzer.py); worker/rules/python/analysis.py tries its function.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto.config.rules.selector import Ranked, Selector, ranked, selector
from shardmerge.proto.config.rules.transform import TransformRefused
from shardmerge.proto.errors import ShardmergeError, config
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import ColumnPlan, ComputedValue, Mapping, PythonFunction, RowTransform
from shardmerge.worker.rules.python import allowed_modules
from shardmerge.worker.rules.python.analysis import PythonRule, analyse_function
from shardmerge.worker.rules.transform.analyzer import Analysis, analyse


@dataclass(frozen=True, slots=True)
class TransformRule:
    name: str
    selector: Selector
    projection: str
    filter: str
    python: PythonRule | None = None


@dataclass(frozen=True, slots=True)
class Transforms:
    """Picklable; ``source`` is only for messages. Calls Spark's analyzer for tables that a rule matches."""

    source: str = ""
    rules: tuple[TransformRule, ...] = ()

    @staticmethod
    def from_config(subtask: pb.SubTaskConfig) -> Transforms:
        """Raises ``config.PATTERN``."""
        return Transforms(
            subtask.source_id,
            tuple(
                TransformRule(
                    rule.name,
                    selector(
                        subtask.task,
                        f"transform {rule.name}",
                        rule.schema_pattern,
                        rule.table_pattern,
                        subtask.case_sensitive,
                    ),
                    rule.projection.strip(),
                    rule.filter.strip(),
                    _python_rule(rule),
                )
                for rule in subtask.transforms
            ),
        )

    def chosen(self, schema: str, table: str) -> Ranked[TransformRule]:
        """The rules that match a table: the most specific one applies."""
        return ranked(self.rules, schema, table)

    def of_table(
        self, table: Table, mappings: dict[int, Mapping]
    ) -> tuple[RowTransform, tuple[ColumnPlan, ...]] | None:
        """The table's transform and the columns that it writes; None: no rule matches the table.

        ``mappings``: of columns, by index. Raises ``config.TRANSFORM_REFUSED``.
        """
        best = self.chosen(table.schema, table.name).best
        if not best:
            return None
        rule = best[0]
        if len(best) > 1:
            names = ", ".join(sorted(each.name for each in best))
            raise self._refused(rule, table, f"transforms {names} match it, and none is more specific")
        places = [index for index, column in enumerate(table.columns) if not column.generated]
        written = tuple(table.columns[at] for at in places)
        function = None if rule.python is None else rule.python.function
        if function is not None and not allowed_modules.is_allowed(function.module):
            raise config.MODULE_NOT_ALLOWED(
                source=self.source, rule=rule.name, schema=table.schema, table=table.name, module=function.module
            )
        try:
            if rule.python is not None:
                found = analyse_function(written, rule.python)
            else:
                found = analyse(written, rule.projection, rule.filter)
        except TransformRefused as reason:
            raise self._refused(rule, table, str(reason)) from reason
        columns = tuple(_planned(found, table, places, mappings))
        kept = {column.index for column in columns}
        for index in table.key:
            if index not in kept:
                name = table.columns[index].name
                raise self._refused(rule, table, f"column {name} of the key {table.key_name} must stay unchanged")
        given = tuple(places[at] for at in found.inputs)
        condition = str(function) if function is not None and function.has_filter else rule.filter
        return RowTransform(rule.name, condition, given, found.has_star, function), columns

    def _refused(self, rule: TransformRule, table: Table, reason: str) -> ShardmergeError:
        return config.TRANSFORM_REFUSED(
            source=self.source, rule=rule.name, schema=table.schema, table=table.name, reason=reason
        )


def _python_rule(rule: pb.Transform) -> PythonRule | None:
    """The rule's function; None: the rule is Spark SQL."""
    if not rule.python:
        return None
    module, _, name = rule.python.partition(":")
    return PythonRule(
        PythonFunction(module, name, rule.row_filter),
        tuple(rule.columns),
        tuple((output.name, output.type, output.nullable) for output in rule.outputs),
    )


def _planned(found: Analysis, table: Table, places: list[int], mappings: dict[int, Mapping]) -> list[ColumnPlan]:
    columns: list[ColumnPlan] = []
    for output in found.outputs:
        if output.column is not None:
            columns.append(ColumnPlan(-1, output.column, output.name, ComputedValue(output.item)))
            continue
        at = places[output.source]
        columns.append(ColumnPlan(at, table.columns[at], output.name, mappings.get(at)))
    return columns
