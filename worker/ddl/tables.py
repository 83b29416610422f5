"""Which of the tables that the rules let through a unit answers for: pure and picklable."""

from __future__ import annotations

from dataclasses import dataclass

from worker.rules import Rules

TableName = tuple[str, str]
"""(schema, table) at the source."""


@dataclass(frozen=True, slots=True)
class TableScope:
    """All of the rules' tables but those of ``others``; of these only ``only``, unless that is None.

    While tables join a running subtask, its own lanes and theirs each pass over what is the other's.
    """

    rules: Rules
    others: frozenset[TableName] = frozenset()
    only: frozenset[TableName] | None = None

    def holds(self, schema: str, table: str) -> bool:
        """Whether the table's rows and statements are this unit's affair. Raises what :meth:`Rules.route` raises."""
        name = (schema, table)
        if name in self.others or (self.only is not None and name not in self.only):
            return False
        return self.rules.route(schema, table) is not None

    def concerns(self, schema: str, table: str) -> bool:
        """Whether statements of the table are: also those of one that an online schema change makes beside a table of
        its. Raises what :meth:`Rules.route` raises."""
        own = self.rules.online.own(table)
        return self.holds(schema, table) or (bool(own) and self.holds(schema, own))

    def may_hold(self, schema: str) -> bool:
        """Whether a table of the schema could be one of them; True when in doubt."""
        if self.only is not None and all(schema != name for name, _ in self.only):
            return False
        return self.rules.may_hold(schema)
