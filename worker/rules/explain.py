"""Describes the rules that decide about a table, for users. Pure; it calls the same functions that decide."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from shardmerge.proto.config.rules.selector import Ranked
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.table import Table
from shardmerge.worker.rules.column_mapping import MappingRule
from shardmerge.worker.rules.event_filter import EventRule, FilterDecision
from shardmerge.worker.rules.router import ChosenRoute, TableRoute
from shardmerge.worker.rules.rules import Rules
from shardmerge.worker.rules.transform_rules import TransformRule


@dataclass(frozen=True, slots=True)
class EffectiveRule:
    """A rule that applies to a table.

    ``kind``: the task file's key ("block-allow-list", "route-rules", …); ``name``: the rule's in the file, "" for a
    default without a rule; ``text``: a phrase with its effect; ``overridden``: rules that match too and are less
    specific.
    """

    kind: str
    name: str
    text: str
    overridden: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explained:
    """``target`` None: the table takes no part, or ``error`` is the reason for which the task would not accept it."""

    takes_part: bool
    target: TableRoute | None
    rules: tuple[EffectiveRule, ...]
    error: ShardmergeError | None = None


def explain(rules: Rules, schema: str, table: str, structure: Table | None = None) -> Explained:
    """The rules that apply to a table; ``structure``: its columns, None when unknown (for example for a missing table).

    :func:`_of_rows` returns the rules for its rows, one kind after the other.
    """
    verdict = rules.judge(schema, table)
    applied = [EffectiveRule("block-allow-list", rules.block_allow.name, verdict.why)]
    if not verdict.passes:
        return Explained(False, None, tuple(applied))
    target: TableRoute | None = None
    try:
        chosen = rules.router.choose(schema, table)
        target = chosen.route
        applied.append(_route(chosen))
        applied.extend(_of_rows(rules, schema, table))
        applied.extend(_references(rules, schema, table, chosen.route))
        if structure is not None:
            rules.mappings(structure, chosen.route)
    except ShardmergeError as error:
        return Explained(True, target, tuple(applied), error)
    return Explained(True, target, tuple(applied))


def _of_rows(rules: Rules, schema: str, table: str) -> Iterator[EffectiveRule]:
    for rule in rules.events.matching(schema, table):
        yield _event_filter(rule)
    for rule in rules.expressions.matching(schema, table):
        conditions = " and ".join(f"{kind}: {text}" for kind, text in rule.by_kind.items())
        yield EffectiveRule("expression-filters", rule.name, f"skips rows where {conditions}")
    for ranked in rules.mapper.chosen(schema, table):
        yield _mapping(rules, ranked, schema, table)
    transforms = rules.transforms.chosen(schema, table)
    if transforms.best:
        yield _transform(transforms)


def _route(chosen: ChosenRoute) -> EffectiveRule:
    best = chosen.rules.best
    if not best:
        return EffectiveRule("route-rules", "", "no route: it keeps its name")
    added = "".join(f", adds {each.target_column} = {each.text!r}" for each in chosen.route.extracts)
    text = f"matches {best[0].selector.text}{added}"
    return EffectiveRule("route-rules", _names(best), text, _each(chosen.rules.overridden))


_ACTIONS = {FilterDecision.PASS: "replicates only", FilterDecision.SKIP: "skips", FilterDecision.STOP: "stops before"}


def _event_filter(rule: EventRule) -> EffectiveRule:
    matched = [*rule.events, *(["statements that a sql-pattern finds"] if rule.sql else [])]
    return EffectiveRule("filter-rules", rule.name, f"{_ACTIONS[rule.verdict]}: {', '.join(matched)}")


def _references(rules: Rules, schema: str, table: str, route: TableRoute) -> Iterator[EffectiveRule]:
    for reference in rules.references.of(route):
        shard, mapped = rules.referred_mapping(reference, schema, table, route)
        text = f"{reference.column}: refers to {shard.schema}.{shard.table}.{reference.to_column}"
        if mapped is None:
            yield EffectiveRule("references", "", f"{text}, which is not mapped")
        else:
            yield EffectiveRule("references", "", f"{text}; {_effect(rules, mapped[0], shard.schema, shard.table)}")


def _mapping(rules: Rules, ranked: Ranked[MappingRule], schema: str, table: str) -> EffectiveRule:
    rule = ranked.best[0]
    text = f"{rule.column}: {_effect(rules, rule, schema, table)}"
    return EffectiveRule("column-mapping-rules", _names(ranked.best), text, _each(ranked.overridden))


def _effect(rules: Rules, rule: MappingRule, schema: str, table: str) -> str:
    if rule.expression == "partition id":
        layout = rules.mapper.numbers(rule, schema, table)
        parts = [f"{part.what} {part.number} in {part.bits} bits" for part in layout.parts]
        return f"{rule.expression}, {', '.join(parts)}, the id in {layout.id_bits}"
    return f"{rule.expression} {rule.arguments[0]!r}"


def _transform(ranked: Ranked[TransformRule]) -> EffectiveRule:
    rule = ranked.best[0]
    parts = {"projection": rule.projection, "filter": rule.filter}
    if rule.python is not None:
        outputs = ", ".join(f"{name} {kind}" for name, kind, _ in rule.python.outputs)
        kept = "row filter" if rule.python.function.has_filter else ""
        result = ", ".join(part for part in (kept, outputs) if part)
        parts = {"python": f"{rule.python.function}({', '.join(rule.python.columns)}) -> {result}"}
    text = ", ".join(f"{key}: {value}" for key, value in parts.items() if value)
    return EffectiveRule("transform-rules", _names(ranked.best), text, _each(ranked.overridden))


class _Named(Protocol):
    @property
    def name(self) -> str: ...


def _names(rules: Iterable[_Named]) -> str:
    return ", ".join(_each(rules))


def _each(rules: Iterable[_Named]) -> tuple[str, ...]:
    return tuple(sorted(rule.name for rule in rules))
