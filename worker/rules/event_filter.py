"""Compiles event filters, which skip changes of a table's rows and structure or stop the task at them. Pure.

The meaning is TiDB DM's (docs: "Filter Binlog Events"; tiflow pkg/binlog-filter/filter.go, ``BinlogEvent.Filter``).
The rules that match the table are evaluated one after the other, and the first one that applies decides; an event to
which no rule applies is replicated. Within a rule:

    Ignore, Error   a listed event, or a statement that an sql-pattern matches, is skipped, or the task stops before it
    Do              an event that is not listed, or a statement that no sql-pattern matches (if there are any), is
                    skipped

A list of events is read from its beginning (``matchEvent``): ``all``, ``all ddl``, ``all dml`` match all these events,
``none``, ``none ddl``, ``none dml`` end the list for them. Rules of the source come before those of the task, rules for
schemas before rules for tables (tidb pkg/util/table-rule-selector/trie_selector.go, ``Match``), then their order in the
file counts. The order matters only where both Error and Ignore apply.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto.config.rules.regex import Regex, RegexError, compile_regex
from shardmerge.proto.config.rules.selector import Selector, selector
from shardmerge.proto.errors import config
from shardmerge.worker.rules.ddl_events import INCOMPATIBLE, LOSING, OF_TABLES, DdlEvents

_ROWS = {"insert": 1, "update": 2, "delete": 3}
"""Events of rows, with their ChangeKind."""


class FilterDecision(enum.Enum):
    PASS = enum.auto()
    SKIP = enum.auto()
    STOP = enum.auto()


_VERDICTS = {
    pb.FILTER_ACTION_DO: FilterDecision.PASS,
    pb.FILTER_ACTION_IGNORE: FilterDecision.SKIP,
    pb.FILTER_ACTION_ERROR: FilterDecision.STOP,
}


@dataclass(frozen=True, slots=True)
class RowEvents:
    """The verdicts of a table's filters on its rows: bits ``1 << ChangeKind``, as in TablePlan. ``may_lack_rows``: see
    TablePlan."""

    skipped_kinds: int
    stop_kinds: int
    may_lack_rows: bool


@dataclass(frozen=True, slots=True)
class EventRule:
    """One rule. ``verdict``: on the events that it lists; PASS for Do, which skips all events that it does not list."""

    name: str
    selector: Selector
    events: tuple[str, ...]
    sql: tuple[Regex, ...]
    verdict: FilterDecision

    def _finds(self, text: str) -> bool:
        return any(expression.matches(text) for expression in self.sql)

    def on_rows(self, event: str) -> FilterDecision:
        """``event``: insert, update, delete."""
        return self._verdict_if(self._lists(frozenset({event}), of_rows=True))

    def on_ddl(self, events: DdlEvents, text: str | None) -> FilterDecision:
        """``text``: None if only the kinds of events matter."""
        if self.verdict is FilterDecision.PASS:
            # A statement of several clauses is replicated if each of them is.
            taken = all(self._lists(names, of_rows=False) for names in events.parts)
        else:
            taken = any(self._lists(names, of_rows=False) for names in events.parts)
        verdict = self._verdict_if(taken)
        if verdict is FilterDecision.PASS and self.sql and text is not None:
            return self._verdict_if(self._finds(text))
        return verdict

    def on_text(self, text: str) -> FilterDecision:
        """The verdict on a statement that cannot be parsed."""
        return self._verdict_if(self._finds(text)) if self.sql else FilterDecision.PASS

    def _verdict_if(self, taken: bool) -> FilterDecision:
        if self.verdict is FilterDecision.PASS:
            return FilterDecision.PASS if taken else FilterDecision.SKIP
        return self.verdict if taken else FilterDecision.PASS

    def _lists(self, names: frozenset[str], *, of_rows: bool) -> bool:
        """Whether the list of events matches an event of these names."""
        kind = "dml" if of_rows else "ddl"
        for event in self.events:
            if event in ("all", f"all {kind}") or event in names:
                return True
            if event in ("none", f"none {kind}"):
                return False
            if event == "incompatible ddl changes" and names & INCOMPATIBLE:
                return True
        return False


@dataclass(frozen=True, slots=True)
class EventFilterRules:
    """``rules``: in the order of their evaluation."""

    rules: tuple[EventRule, ...] = ()

    @staticmethod
    def from_config(subtask: pb.SubTaskConfig) -> EventFilterRules:
        """Compile the source's and the task's filters; raises ``config.PATTERN``."""

        def compiled(messages: Iterable[pb.EventFilter]) -> list[EventRule]:
            rules = [_rule(subtask, message) for message in messages]
            return sorted(rules, key=lambda rule: rule.selector.table is not None)

        return EventFilterRules((*compiled(subtask.source_filters), *compiled(subtask.event_filters)))

    def rows(self, schema: str, table: str) -> RowEvents:
        """The verdicts on the table's row events.

        The target may lack rows of the table if row events are skipped, or if statements may be skipped that remove
        rows or the table: the rows that then remain at the target collide with later ones.
        """
        matching = self.matching(schema, table)
        passed_over = stops = 0
        for event, kind in _ROWS.items():
            verdict = _first(rule.on_rows(event) for rule in matching)
            passed_over |= (verdict is FilterDecision.SKIP) << kind
            stops |= (verdict is FilterDecision.STOP) << kind
        by_text = any(rule.sql and rule.verdict is not FilterDecision.STOP for rule in matching)
        keeps_rows = any(
            self.ddl(*place, DdlEvents.of(name)) is FilterDecision.SKIP
            for name, place in ((name, _place(name, schema, table)) for name in LOSING)
        )
        return RowEvents(passed_over, stops, bool(passed_over) or by_text or keeps_rows)

    def ddl(self, schema: str, table: str, events: DdlEvents, text: str | None = None) -> FilterDecision:
        """The verdict on a statement on a table; ``table``: "" for a statement on a schema."""
        return _first(rule.on_ddl(events, text) for rule in self.matching(schema, table))

    def skips_structure(self, schema: str, table: str) -> bool:
        """Whether no statement on the table reaches the target, whatever it does."""
        return all(
            self.ddl(*_place(name, schema, table), DdlEvents.of(name)) is FilterDecision.SKIP for name in OF_TABLES
        )

    def names_of(self, schema: str, table: str) -> frozenset[str]:
        """All events that rules for the table list."""
        return frozenset(event for rule in self.matching(schema, table) for event in rule.events)

    def unknown(self, text: str) -> FilterDecision:
        """The verdict on a statement whose tables are unknown: the sql-patterns of rules for every schema decide."""
        return _first(rule.on_text(text) for rule in self.matching("", ""))

    def matching(self, schema: str, table: str) -> list[EventRule]:
        """The rules for a table, in the order of their evaluation; ``table``: "" for a schema itself."""
        return [rule for rule in self.rules if rule.selector.matches(schema, table)]


def _place(name: str, schema: str, table: str) -> tuple[str, str]:
    return (schema, "") if name == "drop database" else (schema, table)


def _first(verdicts: Iterable[FilterDecision]) -> FilterDecision:
    return next((verdict for verdict in verdicts if verdict is not FilterDecision.PASS), FilterDecision.PASS)


def _rule(subtask: pb.SubTaskConfig, message: pb.EventFilter) -> EventRule:
    name = f"filter {message.name}"
    made = selector(subtask.task, name, message.schema_pattern, message.table_pattern, subtask.case_sensitive)
    return EventRule(
        message.name,
        made,
        tuple(_ALIASES.get(event, event) for event in message.events),
        _sql(subtask.task, name, message.sql_patterns),
        _VERDICTS[message.action],
    )


_ALIASES = {"create schema": "create database", "drop schema": "drop database", "alter schema": "alter database"}


def _sql(task: str, name: str, patterns: Sequence[str]) -> tuple[Regex, ...]:
    made: list[Regex] = []
    for text in patterns:
        try:
            made.append(compile_regex(text, ignore_case=True))
        except RegexError as error:
            raise config.PATTERN(task=task, rule=name, pattern=text, reason=error) from error
    return tuple(made)
