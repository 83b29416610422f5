"""Compiles transform rules, which compute a table's columns by SQL over one row.

The most specific rule applies to a table, as for routes. Spark's analyzer determines the meaning of its text
(worker/rules/transform/analyzer.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto.config.rules.selector import Ranked, Selector, ranked, selector
from shardmerge.proto.config.rules.transform import Refused
from shardmerge.proto.errors import ShardmergeError, config
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import ColumnPlan, Computed, Mapping, RowTransform
from shardmerge.worker.rules.transform.analyzer import Analysis, analyse


@dataclass(frozen=True, slots=True)
class TransformRule:
    name: str
    selector: Selector
    projection: str
    filter: str


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
        try:
            found = analyse(tuple(table.columns[at] for at in places), rule.projection, rule.filter)
        except Refused as reason:
            raise self._refused(rule, table, str(reason)) from reason
        columns = tuple(_planned(found, table, places, mappings))
        written = {column.index for column in columns}
        for index in table.key:
            if index not in written:
                name = table.columns[index].name
                raise self._refused(rule, table, f"column {name} of the key {table.key_name} must stay unchanged")
        given = tuple(places[at] for at in found.inputs)
        return RowTransform(rule.name, rule.filter, given, found.has_star), columns

    def _refused(self, rule: TransformRule, table: Table, reason: str) -> ShardmergeError:
        return config.TRANSFORM_REFUSED(
            source=self.source, rule=rule.name, schema=table.schema, table=table.name, reason=reason
        )


def _planned(found: Analysis, table: Table, places: list[int], mappings: dict[int, Mapping]) -> list[ColumnPlan]:
    columns: list[ColumnPlan] = []
    for output in found.outputs:
        if output.column is not None:
            columns.append(ColumnPlan(-1, output.column, output.name, Computed(output.item)))
            continue
        at = places[output.source]
        columns.append(ColumnPlan(at, table.columns[at], output.name, mappings.get(at)))
    return columns
