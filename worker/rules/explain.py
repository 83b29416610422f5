"""Why a table's rows go where they go: the deciding rules put into words. Pure; the same calls decide and explain."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from proto.config.selector import Ranked
from proto.errors import ShardmergeError
from worker.rules.column_mapping import MappingRule
from worker.rules.event_filter import EventRule, Verdict
from worker.rules.router import Chosen, Route
from worker.rules.rules import Rules
from worker.rules.transform import TransformRule
from worker.table import Table


@dataclass(frozen=True, slots=True)
class Applied:
    """A rule that concerns a table.

    ``kind``: the task file's key ("block-allow-list", "route-rules", …); ``name``: the rule's in the file, "" for what
    no rule of the file says; ``text``: what it does, a phrase; ``beaten``: rules that match too and are less specific.
    """

    kind: str
    name: str
    text: str
    beaten: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explained:
    """``target`` None: the table takes no part, or ``error`` says why the task would not take it."""

    takes_part: bool
    target: Route | None
    rules: tuple[Applied, ...]
    error: ShardmergeError | None = None


def explain(rules: Rules, schema: str, table: str, structure: Table | None = None) -> Explained:
    """What the rules make of a table; ``structure``: its columns, None when it is not known (it does not exist, say).

    What rules say of a table's rows, one kind after the other, comes from :func:`_of_rows`.
    """
    verdict = rules.judge(schema, table)
    said = [Applied("block-allow-list", rules.block_allow.name, verdict.why)]
    if not verdict.passes:
        return Explained(False, None, tuple(said))
    target: Route | None = None
    try:
        chosen = rules.router.choose(schema, table)
        target = chosen.route
        said.append(_route(chosen))
        said.extend(_of_rows(rules, schema, table))
        if structure is not None:
            rules.mapper.mappings(structure)
    except ShardmergeError as error:
        return Explained(True, target, tuple(said), error)
    return Explained(True, target, tuple(said))


def _of_rows(rules: Rules, schema: str, table: str) -> Iterator[Applied]:
    for rule in rules.events.matching(schema, table):
        yield _event_filter(rule)
    for rule in rules.expressions.matching(schema, table):
        conditions = " and ".join(f"{kind}: {text}" for kind, text in rule.by_kind.items())
        yield Applied("expression-filters", rule.name, f"passes over where {conditions}")
    for ranked in rules.mapper.chosen(schema, table):
        yield _mapping(rules, ranked, schema, table)
    transforms = rules.transforms.chosen(schema, table)
    if transforms.best:
        yield _transform(transforms)


def _route(chosen: Chosen) -> Applied:
    best = chosen.rules.best
    if not best:
        return Applied("route-rules", "", "no route: it keeps its name")
    added = "".join(f", adds {each.target_column} = {each.text!r}" for each in chosen.route.extracts)
    text = f"matches {best[0].selector.text}{added}"
    return Applied("route-rules", _names(best), text, _each(chosen.rules.beaten))


_ACTIONS = {Verdict.PASS: "lets pass only", Verdict.PASS_OVER: "passes over", Verdict.STOP: "stops before"}


def _event_filter(rule: EventRule) -> Applied:
    said = [*rule.events, *(["statements that a sql-pattern finds"] if rule.sql is not None else [])]
    return Applied("filter-rules", rule.name, f"{_ACTIONS[rule.verdict]}: {', '.join(said)}")


def _mapping(rules: Rules, ranked: Ranked[MappingRule], schema: str, table: str) -> Applied:
    rule = ranked.best[0]
    text = f"{rule.column}: {rule.expression}"
    if rule.expression == "partition id":
        layout = rules.mapper.numbers(rule, schema, table)
        parts = [f"{part.what} {part.number} in {part.bits} bits" for part in layout.parts]
        text = f"{text}, {', '.join(parts)}, the id in {layout.id_bits}"
    else:
        text = f"{text} {rule.arguments[0]!r}"
    return Applied("column-mapping-rules", _names(ranked.best), text, _each(ranked.beaten))


def _transform(ranked: Ranked[TransformRule]) -> Applied:
    rule = ranked.best[0]
    said = {"projection": rule.projection, "filter": rule.filter}
    text = ", ".join(f"{key}: {value}" for key, value in said.items() if value)
    return Applied("transform-rules", _names(ranked.best), text, _each(ranked.beaten))


class _Named(Protocol):
    @property
    def name(self) -> str: ...


def _names(rules: Iterable[_Named]) -> str:
    return ", ".join(_each(rules))


def _each(rules: Iterable[_Named]) -> tuple[str, ...]:
    return tuple(sorted(rule.name for rule in rules))
