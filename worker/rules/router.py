"""Determines the target table of a shard table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto.config.rules.regex import Regex, RegexError, compile_regex
from shardmerge.proto.config.rules.selector import Ranked, Selector, ranked, selector
from shardmerge.proto.errors import config
from shardmerge.worker.core.table_plan import AutoIncrement, ExtractInKey

_AUTO_INCREMENTS = {
    pb.AUTO_INCREMENT_KEEP: AutoIncrement.KEEP,
    pb.AUTO_INCREMENT_AFTER_MAX: AutoIncrement.AFTER_MAX,
    pb.AUTO_INCREMENT_NONE: AutoIncrement.NONE,
}
_EXTRACT_IN_KEY = {
    pb.EXTRACT_IN_KEY_AUTO: ExtractInKey.AUTO,
    pb.EXTRACT_IN_KEY_ALWAYS: ExtractInKey.ALWAYS,
    pb.EXTRACT_IN_KEY_NEVER: ExtractInKey.NEVER,
}
_LONGEST_NAME = 64
_LONGEST_TEXT = 256


@dataclass(frozen=True, slots=True)
class Extracted:
    """A column of the target that has the same ``text`` in all rows of the shard table. ``most``: the most characters
    that the rule can extract from any name."""

    target_column: str
    text: str
    most: int = field(default=_LONGEST_TEXT, compare=False)


@dataclass(frozen=True, slots=True)
class TableRoute:
    """The target of a table's rows.

    ``extracts``: columns that are added to them (DM docs: "Extract table, schema, and source information and write into
    the merged table"). Their text is the concatenation of the groups that the rule's regular expression matches, "" if
    it does not match (tidb pkg/util/table-router/router.go, ``extractVal``). ``auto_increment``, ``extract_in_key``:
    of the target, if it is created.
    """

    target_schema: str
    target_table: str
    extracts: tuple[Extracted, ...] = ()
    auto_increment: AutoIncrement = AutoIncrement.NONE
    extract_in_key: ExtractInKey = ExtractInKey.NEVER


@dataclass(frozen=True, slots=True)
class ExtractRule:
    """``of``: the name in which ``pattern`` is searched, "table", "schema" or "source"."""

    of: str
    pattern: Regex
    target_column: str

    def extracted(self, names: Mapping[str, str]) -> Extracted:
        # Groups may be nested: each of them can be the whole name.
        most = min(_LONGEST_NAME * max(self.pattern.group_count, 1), _LONGEST_TEXT)
        return Extracted(self.target_column, "".join(self.pattern.groups(names[self.of]) or ()), most)


@dataclass(frozen=True, slots=True)
class RouteRule:
    """``target_table`` "": the table keeps its name."""

    name: str
    selector: Selector
    target_schema: str
    target_table: str
    extracts: tuple[ExtractRule, ...] = ()
    auto_increment: AutoIncrement = AutoIncrement.NONE
    extract_in_key: ExtractInKey = ExtractInKey.NEVER

    def may_lead_to(self, target_schema: str, target_table: str) -> bool:
        return self.target_schema == target_schema and self.target_table in ("", target_table)

    def route(self, source: str, schema: str, table: str) -> TableRoute:
        names = {"source": source, "schema": schema, "table": table}
        extracts = tuple(rule.extracted(names) for rule in self.extracts)
        return TableRoute(
            self.target_schema, self.target_table or table, extracts, self.auto_increment, self.extract_in_key
        )


@dataclass(frozen=True, slots=True)
class ChosenRoute:
    """``rules``: the rules that chose ``route``; without a best one the table keeps its name."""

    route: TableRoute
    rules: Ranked[RouteRule]


@dataclass(frozen=True, slots=True)
class Router:
    """Pure. ``source``: the id of the source; "" in recorded rules, which sources share. ``auto_increment``: of targets
    that no rule decides."""

    source: str
    rules: tuple[RouteRule, ...]
    auto_increment: AutoIncrement = AutoIncrement.NONE

    @staticmethod
    def from_config(subtask: pb.SubTaskConfig) -> Router:
        """Compile the routes; raises ``config.PATTERN``."""
        default = _AUTO_INCREMENTS.get(subtask.auto_increment, AutoIncrement.NONE)
        in_key = _EXTRACT_IN_KEY.get(subtask.extract_in_key, ExtractInKey.NEVER)  # unset: an earlier version's task
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
                    tuple(_extracts(subtask.task, rule)),
                    _AUTO_INCREMENTS.get(rule.auto_increment, default),
                    _EXTRACT_IN_KEY.get(rule.extract_in_key, in_key),
                )
                for rule in subtask.routes
            ),
            default,
        )

    def route(self, schema: str, table: str, source: str = "") -> TableRoute:
        """The target of a table; ``source``: the id of its source, "" for ``self.source``. Raises
        ``config.AMBIGUOUS_ROUTE``."""
        return self.choose(schema, table, source).route

    def keeps_name(self, schema: str, table: str) -> bool:
        """Whether no rule matches a table of this name."""
        return not any(rule.selector.matches(schema, table) for rule in self.rules)

    def only_names(self, target_schema: str, target_table: str) -> tuple[bool, bool]:
        """Whether all shard tables that rules send to a target have the same schema, and the same table name. Derived
        from the rules alone, so that it includes future tables."""
        schemas: set[str] = set()
        tables: set[str] = set()
        for rule in self.rules:
            if not rule.may_lead_to(target_schema, target_table):
                continue
            schema, table = rule.selector.schema, rule.selector.table
            schemas.add(schema.text if schema.exact else "")
            if not rule.target_table:
                tables.add(target_table)
            else:
                tables.add(table.text if table is not None and table.exact else "")
        return len(schemas) == 1 and "" not in schemas, len(tables) == 1 and "" not in tables

    def choose(self, schema: str, table: str, source: str = "") -> ChosenRoute:
        """The target of a table, with the rules that chose it; a table that no rule matches keeps its schema and name.

        Rules of equal rank that agree on the target do not conflict. Raises ``config.AMBIGUOUS_ROUTE``.
        """
        rules = ranked(self.rules, schema, table)
        routes = {rule.route(source or self.source, schema, table) for rule in rules.best}
        if not routes:
            return ChosenRoute(TableRoute(schema, table, auto_increment=self.auto_increment), rules)
        if len(routes) > 1:
            names = ", ".join(sorted(rule.name for rule in rules.best))
            raise config.AMBIGUOUS_ROUTE(source=self.source, schema=schema, table=table, rules=names)
        return ChosenRoute(routes.pop(), rules)


def _extracts(task: str, rule: pb.RouteRule) -> Iterator[ExtractRule]:
    """In DM's order (``FetchExtendColumn``)."""
    for of, message in (
        ("table", rule.extract_table),
        ("schema", rule.extract_schema),
        ("source", rule.extract_source),
    ):
        if not message.target_column:
            continue
        try:
            yield ExtractRule(of, compile_regex(message.pattern), message.target_column)
        except RegexError as error:
            raise config.PATTERN(
                task=task, rule=f"route {rule.name}, extract-{of}", pattern=message.pattern, reason=error
            ) from error
