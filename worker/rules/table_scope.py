"""The set of tables that a unit replicates, among those that the rules allow. Pure and picklable."""

from __future__ import annotations

from dataclasses import dataclass

from shardmerge.worker.rules import Rules

TableName = tuple[str, str]
"""(schema, table) at the source."""


@dataclass(frozen=True, slots=True)
class TableScope:
    """All tables of the rules except ``others``; if ``only`` is not None, only those in it.

    While tables join a running subtask, the main lanes and the join lanes each skip the tables of the other stream.
    """

    rules: Rules
    others: frozenset[TableName] = frozenset()
    only: frozenset[TableName] | None = None

    def holds(self, schema: str, table: str) -> bool:
        """Whether this unit replicates the table's rows and statements. Raises what :meth:`Rules.route` raises."""
        name = (schema, table)
        if name in self.others or (self.only is not None and name not in self.only):
            return False
        return self.rules.route(schema, table) is not None

    def owned_name(self, schema: str, table: str) -> TableName | None:
        """The name under which this unit has the table, which need not exist; None: another unit has it.

        The unit that has a table also has its shadow and trash tables of online schema changes. A server with
        ``lower_case_table_names=1`` logs names as they were typed, while its tables have them in lower case.
        """
        forms = dict.fromkeys(((schema, table), (schema.lower(), table.lower())))
        own = self.rules.online.own(table)
        owners = dict.fromkeys(((schema, own), (schema.lower(), own.lower()))) if own else {}
        if self.only is None:
            is_other = not self.others.isdisjoint((*forms, *owners))
            return None if is_other else (schema, table)
        at = next((name for name in forms if name in self.only), None)
        return at or ((schema, table) if not self.only.isdisjoint(owners) else None)

    def concerns(self, schema: str, table: str) -> bool:
        """Whether this unit handles statements of the table: also those of a shadow or trash table of an online schema
        change of its tables. Raises what :meth:`Rules.route` raises."""
        own = self.rules.online.own(table)
        return self.holds(schema, table) or (bool(own) and self.holds(schema, own))

    def may_hold(self, schema: str) -> bool:
        """Whether a table of the schema could be one of them; True when in doubt."""
        if self.only is not None and all(schema != name for name, _ in self.only):
            return False
        return self.rules.may_hold(schema)
