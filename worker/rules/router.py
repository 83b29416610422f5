"""Router: the target table of a shard table."""

from __future__ import annotations

from dataclasses import dataclass

from proto import config_pb2 as pb
from proto.config.selector import Ranked, Selector, ranked, selector
from proto.errors import config


@dataclass(frozen=True, slots=True)
class Route:
    """Where a table's rows go."""

    target_schema: str
    target_table: str


@dataclass(frozen=True, slots=True)
class RouteRule:
    """``target_table`` "": the table keeps its name."""

    name: str
    selector: Selector
    target_schema: str
    target_table: str

    def route(self, table: str) -> Route:
        return Route(self.target_schema, self.target_table or table)


@dataclass(frozen=True, slots=True)
class Chosen:
    """``rules``: who decided for ``route``; no best one: the table keeps its name."""

    route: Route
    rules: Ranked[RouteRule]


@dataclass(frozen=True, slots=True)
class Router:
    """Pure; ``source`` is only for messages."""

    source: str
    rules: tuple[RouteRule, ...]

    @staticmethod
    def from_config(subtask: pb.SubTaskConfig) -> Router:
        """Compile the routes; raises ``config.PATTERN``."""
        return Router(
            subtask.source_id,
            tuple(
                RouteRule(
                    rule.name,
                    selector(
                        subtask.task,
                        f"route {rule.name}",
                        rule.schema_pattern,
                        rule.table_pattern,
                        subtask.case_sensitive,
                    ),
                    rule.target_schema,
                    rule.target_table,
                )
                for rule in subtask.routes
            ),
        )

    def route(self, schema: str, table: str) -> Route:
        """The target of a table; raises ``config.AMBIGUOUS_ROUTE``."""
        return self.choose(schema, table).route

    def choose(self, schema: str, table: str) -> Chosen:
        """The target of a table, and by which rules; a table that no rule matches keeps its schema and name.

        Rules of equal rank that agree on the target are no conflict. Raises ``config.AMBIGUOUS_ROUTE``.
        """
        rules = ranked(self.rules, schema, table)
        routes = {rule.route(table) for rule in rules.best}
        if not routes:
            return Chosen(Route(schema, table), rules)
        if len(routes) > 1:
            names = ", ".join(sorted(rule.name for rule in rules.best))
            raise config.AMBIGUOUS_ROUTE(source=self.source, schema=schema, table=table, rules=names)
        return Chosen(routes.pop(), rules)
