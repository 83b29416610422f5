"""Compiles expression filters, which filter out rows of a table by their values.

Source: DM's documentation, "Filter DMLs Using SQL Expressions": a change for which the expression is true is filtered
out, one for which it is false or NULL is not; if a rule has both expressions for an update, both must be true; a rule
names its table exactly; a table may have several rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto.config.rules.expression import Expression, ExpressionRefused, NoColumn, parse
from shardmerge.proto.errors import config
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import ColumnPlan, RowFilter


@dataclass(frozen=True, slots=True)
class FilterRule:
    """``expressions``: by kind (insert, update_old, update_new, delete); "" where the rule has none."""

    name: str
    schema: str
    table: str
    insert: str
    update_old: str
    update_new: str
    delete: str

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(self.by_kind.values())

    @property
    def by_kind(self) -> dict[str, str]:
        """The expressions that the rule has, by their keys in the task file."""
        kinds = {
            "insert-value": self.insert,
            "update-old-value": self.update_old,
            "update-new-value": self.update_new,
            "delete-value": self.delete,
        }
        return {kind: text for kind, text in kinds.items() if text}


@dataclass(frozen=True, slots=True)
class ExpressionFilters:
    """Pure and picklable; ``source`` is only for messages."""

    source: str = ""
    rules: tuple[FilterRule, ...] = ()
    case_sensitive: bool = False

    @staticmethod
    def from_config(subtask: pb.SubTaskConfig) -> ExpressionFilters:
        """Raises ``config.EXPRESSION_REFUSED``."""
        found = ExpressionFilters(
            subtask.source_id,
            tuple(
                FilterRule(
                    rule.name,
                    rule.schema,
                    rule.table,
                    rule.insert_value.strip(),
                    rule.update_old_value.strip(),
                    rule.update_new_value.strip(),
                    rule.delete_value.strip(),
                )
                for rule in subtask.expression_filters
            ),
            subtask.case_sensitive,
        )
        for rule in found.rules:
            for text in rule.texts:
                found.parsed(rule, text)
        return found

    def parsed(self, rule: FilterRule, text: str) -> Expression:
        """Raises ``config.EXPRESSION_REFUSED``."""
        try:
            return parse(text)
        except ExpressionRefused as reason:
            raise config.EXPRESSION_REFUSED(
                source=self.source, rule=f"expression filter {rule.name}", expression=text, reason=reason
            ) from reason

    def of_table(self, table: Table, columns: Sequence[ColumnPlan]) -> tuple[RowFilter, ...]:
        """The filters of a table's rows, in the rules' order; ``columns``: those that are written.

        Raises ``config.EXPRESSION_COLUMN``, ``config.EXPRESSION_REFUSED``.
        """
        places = {plan.column.name.lower(): at for at, plan in enumerate(columns)}
        found: list[RowFilter] = []
        for rule in self.matching(table.schema, table.name):
            named: set[int] = set()
            for text in rule.texts:
                try:
                    named.update(self.parsed(rule, text).columns(places))
                except NoColumn as missing:
                    raise config.EXPRESSION_COLUMN(
                        source=self.source,
                        rule=f"expression filter {rule.name}",
                        expression=text,
                        column=missing,
                        schema=table.schema,
                        table=table.name,
                    ) from missing
            found.append(
                RowFilter(rule.name, tuple(sorted(named)), rule.insert, rule.update_old, rule.update_new, rule.delete)
            )
        return tuple(found)

    def matching(self, schema: str, table: str) -> list[FilterRule]:
        """The rules of a table, in the file's order."""
        return [rule for rule in self.rules if self._same(rule.schema, schema) and self._same(rule.table, table)]

    def _same(self, one: str, other: str) -> bool:
        return one == other if self.case_sensitive else one.lower() == other.lower()
