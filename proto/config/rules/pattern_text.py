"""Patterns, regular expressions and names in the rules of a task file."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from shardmerge.proto.config.key import Key
from shardmerge.proto.config.rules.pattern import PatternError, compile_pattern
from shardmerge.proto.config.rules.regex import compile_regex

_SHOWN = 200


def _pattern(text: str) -> str:
    try:
        compile_pattern(text, case_sensitive=True)
    except PatternError as error:
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
        raise ValueError(f"pattern {shown!r}: {error}") from error
    return text


PatternText = Annotated[str, AfterValidator(_pattern)]
OptionalPattern = Annotated[str, AfterValidator(lambda text: text and _pattern(text))]
Identifier = Annotated[str, Field(min_length=1, max_length=64)]


SCHEMAS = Key(
    "Pattern of schemas: wildcards `?`, `[a-z]`, `*` at the end, or `~` and a regular expression.", sample="shard_*"
)
TABLES = Key("Pattern of tables.", default="every table of the schemas", sample="order_*")


def _groups(text: str) -> str:
    if text.startswith("~"):
        raise ValueError("is a regular expression without ~ before it, which would be a character of the name")
    if not compile_regex(text, needs_groups=True).group_count:
        raise ValueError("needs a group (…), which matches the value of the column")
    return text


def _expression(text: str) -> str:
    compile_regex(text)
    return text


GroupsText = Annotated[str, AfterValidator(_groups)]
ExpressionText = Annotated[str, AfterValidator(_expression)]
