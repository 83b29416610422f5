"""Event filters: which changes of a table's rows and structure are applied at all. Pure.

The meaning is TiDB DM's (docs: "Filter Binlog Events"; tiflow pkg/binlog-filter/filter.go, ``BinlogEvent.Filter``).
Every rule that matches the table is asked, one after the other, and the first that says something decides; an event
that none says anything of passes. Within a rule:

    Ignore, Error   a listed event, or a statement that an sql-pattern finds, is passed over, or stopped before
    Do              an event that is not listed, or a statement that no sql-pattern finds (if there are any), is passed
                    over

A list of events is read from its beginning (``matchEvent``): ``all``, ``all ddl``, ``all dml`` take what they name,
``none``, ``none ddl``, ``none dml`` end the list for it. Rules of the source come before those of the task, rules for
schemas before rules for tables (tidb pkg/util/table-rule-selector/trie_selector.go, ``Match``), then their order in the
file counts. It matters only where Error and Ignore meet.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from proto import config_pb2 as pb
from proto.config.regex import Regex, RegexError, compile_regex
from proto.config.selector import Selector, selector
from proto.errors import config
from worker.rules.ddl_events import INCOMPATIBLE, LOSING, DdlEvents

_ROWS = {"insert": 1, "update": 2, "delete": 3}
"""Events of rows, with their ChangeKind."""


class Verdict(enum.Enum):
    PASS = enum.auto()
    PASS_OVER = enum.auto()
    STOP = enum.auto()


_VERDICTS = {
    pb.FILTER_ACTION_DO: Verdict.PASS,
    pb.FILTER_ACTION_IGNORE: Verdict.PASS_OVER,
    pb.FILTER_ACTION_ERROR: Verdict.STOP,
}


@dataclass(frozen=True, slots=True)
class RowEvents:
    """What a table's filters say of its rows: bits ``1 << ChangeKind``, as in TablePlan. ``loose``: see there."""

    passed_over: int
    stops: int
    loose: bool


@dataclass(frozen=True, slots=True)
class EventRule:
    """``verdict``: on what the rule takes; PASS for Do, which passes over all that it does not take."""

    name: str
    selector: Selector
    events: tuple[str, ...]
    sql: Regex | None
    verdict: Verdict

    def on_rows(self, event: str) -> Verdict:
        """``event``: insert, update, delete."""
        return self._said(self._lists(frozenset({event}), of_rows=True))

    def on_ddl(self, events: DdlEvents, text: str | None) -> Verdict:
        """``text``: None where only the kinds of events are asked for."""
        if self.verdict is Verdict.PASS:
            # A statement of several clauses passes if each of them does.
            taken = all(self._lists(names, of_rows=False) for names in events.parts)
        else:
            taken = any(self._lists(names, of_rows=False) for names in events.parts)
        said = self._said(taken)
        if said is Verdict.PASS and self.sql is not None and text is not None:
            return self._said(self.sql.matches(text))
        return said

    def on_text(self, text: str) -> Verdict:
        """Of a statement that is not understood."""
        return Verdict.PASS if self.sql is None else self._said(self.sql.matches(text))

    def _said(self, taken: bool) -> Verdict:
        if self.verdict is Verdict.PASS:
            return Verdict.PASS if taken else Verdict.PASS_OVER
        return self.verdict if taken else Verdict.PASS

    def _lists(self, names: frozenset[str], *, of_rows: bool) -> bool:
        """Whether the list of events takes an event of these names."""
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
class EventFilter:
    """``rules``: in the order in which they are asked."""

    rules: tuple[EventRule, ...] = ()

    @staticmethod
    def from_config(subtask: pb.SubTaskConfig) -> EventFilter:
        """Compile the source's and the task's filters; raises ``config.PATTERN``."""

        def compiled(messages: Iterable[pb.EventFilter]) -> list[EventRule]:
            rules = [_rule(subtask, message) for message in messages]
            return sorted(rules, key=lambda rule: rule.selector.table is not None)

        return EventFilter((*compiled(subtask.source_filters), *compiled(subtask.event_filters)))

    def rows(self, schema: str, table: str) -> RowEvents:
        """What becomes of the table's row events.

        The table is loose where row events are passed over, or where statements may be by which rows or the table go:
        what they leave at the target meets what comes.
        """
        matching = self.matching(schema, table)
        passed_over = stops = 0
        for event, kind in _ROWS.items():
            verdict = _first(rule.on_rows(event) for rule in matching)
            passed_over |= (verdict is Verdict.PASS_OVER) << kind
            stops |= (verdict is Verdict.STOP) << kind
        by_text = any(rule.sql is not None and rule.verdict is not Verdict.STOP for rule in matching)
        keeps_rows = any(
            self.ddl(*place, DdlEvents.of(name)) is Verdict.PASS_OVER
            for name, place in ((name, _place(name, schema, table)) for name in LOSING)
        )
        return RowEvents(passed_over, stops, bool(passed_over) or by_text or keeps_rows)

    def ddl(self, schema: str, table: str, events: DdlEvents, text: str | None = None) -> Verdict:
        """Of a statement on a table; ``table``: "" for one on a schema."""
        return _first(rule.on_ddl(events, text) for rule in self.matching(schema, table))

    def names_of(self, schema: str, table: str) -> frozenset[str]:
        """All events that rules for the table list."""
        return frozenset(event for rule in self.matching(schema, table) for event in rule.events)

    def unknown(self, text: str) -> Verdict:
        """Of a statement whose tables are not known: the sql-patterns of rules for every schema decide."""
        return _first(rule.on_text(text) for rule in self.matching("", ""))

    def matching(self, schema: str, table: str) -> list[EventRule]:
        """The rules that are asked about a table, in that order; ``table``: "" for a schema itself."""
        return [rule for rule in self.rules if rule.selector.matches(schema, table)]


def _place(name: str, schema: str, table: str) -> tuple[str, str]:
    return (schema, "") if name == "drop database" else (schema, table)


def _first(verdicts: Iterable[Verdict]) -> Verdict:
    return next((verdict for verdict in verdicts if verdict is not Verdict.PASS), Verdict.PASS)


def _rule(subtask: pb.SubTaskConfig, message: pb.EventFilter) -> EventRule:
    name = f"filter {message.name}"
    made = selector(subtask.task, name, message.schema_pattern, message.table_pattern, subtask.case_sensitive)
    return EventRule(
        message.name,
        made,
        tuple(_ALIASES.get(event, event) for event in message.events),
        _sql(subtask.task, name, list(message.sql_patterns)),
        _VERDICTS[message.action],
    )


_ALIASES = {"create schema": "create database", "drop schema": "drop database", "alter schema": "alter database"}


def _sql(task: str, name: str, patterns: list[str]) -> Regex | None:
    if not patterns:
        return None
    text = "|".join(f"(?:{pattern})" for pattern in patterns)
    try:
        return compile_regex(text, ignore_case=True)
    except RegexError as error:
        raise config.PATTERN(task=task, rule=name, pattern=text, reason=error) from error
