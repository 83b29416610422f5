"""Selects the rule that applies to a table: the most specific one, whatever the order in the file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from shardmerge.proto.config.rules.pattern import Pattern, PatternError, compile_pattern
from shardmerge.proto.errors import config


@dataclass(frozen=True, slots=True)
class Selector:
    """The tables a rule is for. ``table`` None: every table of the schemas."""

    schema: Pattern
    table: Pattern | None

    @property
    def text(self) -> str:
        """The patterns of the rule as text; a rule for schemas has one."""
        return self.schema.text if self.table is None else f"{self.schema.text}.{self.table.text}"

    def matches(self, schema: str, table: str) -> bool:
        return self.schema.matches(schema) and (self.table is None or self.table.matches(table))

    def more_specific_than(self, other: Selector) -> bool:
        """Whether this selector wins over ``other`` for a table that both match.

        A rule for tables wins over a rule for schemas (as in DM). Otherwise both patterns must be at least as specific
        as the other rule's and one of them more.
        """
        if self.table is None or other.table is None:
            if self.table is other.table:
                return self.schema.more_specific_than(other.schema)
            return self.table is not None
        schema = self.schema.more_specific_than(other.schema)
        table = self.table.more_specific_than(other.table)
        return (
            (schema or table)
            and (schema or self.schema.same_as(other.schema))
            and (table or self.table.same_as(other.table))
        )


class _Rule(Protocol):
    @property
    def selector(self) -> Selector: ...


R = TypeVar("R", bound=_Rule)


@dataclass(frozen=True, slots=True)
class Ranked(Generic[R]):
    """The rules that match a table. ``best``: those that no other rule overrides; more than one: they cannot be
    compared. ``overridden``: the others."""

    best: tuple[R, ...]
    overridden: tuple[R, ...]


def ranked(rules: Iterable[R], schema: str, table: str) -> Ranked[R]:
    """Which of ``rules`` apply to the table."""
    matching = [rule for rule in rules if rule.selector.matches(schema, table)]
    lost = [rule for rule in matching if any(other.selector.more_specific_than(rule.selector) for other in matching)]
    return Ranked(tuple(rule for rule in matching if rule not in lost), tuple(lost))


def compiled(task: str, rule: str, text: str, case_sensitive: bool) -> Pattern:
    """The pattern of a rule; raises ``config.PATTERN`` naming the rule."""
    try:
        return compile_pattern(text, case_sensitive)
    except PatternError as error:
        raise config.PATTERN(task=task, rule=rule, pattern=text, reason=error) from error


def selector(task: str, rule: str, schema: str, table: str, case_sensitive: bool) -> Selector:
    """The selector of a rule's two patterns; raises ``config.PATTERN``."""
    return Selector(
        compiled(task, rule, schema, case_sensitive),
        compiled(task, rule, table, case_sensitive) if table else None,
    )
