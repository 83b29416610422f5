"""Recognizes the tables that tools for online schema changes make, by their names: DM's shadow and trash rules.

Such a tool builds the new table as a shadow table and then exchanges it with the table, whose old version becomes a
trash table (gh-ost, "doc/cheatsheet.md": ``_t_gho``, ``_t_ghc``, ``_t_del``; pt-online-schema-change(1): ``_t_new``,
``_t_old``). Both hold copies of rows that the task has already, so neither takes part by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto.config.rules.regex import Regex, RegexError, compile_regex
from shardmerge.proto.errors import config


@dataclass(frozen=True, slots=True)
class OnlineNames:
    """``shadow``, ``trash``: patterns of such names, with the table's own name in the first group; () for none.
    Picklable."""

    shadow: tuple[Regex, ...] = ()
    trash: tuple[Regex, ...] = ()

    @staticmethod
    def from_config(task: str, message: pb.OnlineDdl) -> OnlineNames:
        """Compile the rules; raises ``config.PATTERN``."""
        return OnlineNames(
            tuple(_compiled(task, "shadow-table-rules", text) for text in message.shadow_tables),
            tuple(_compiled(task, "trash-table-rules", text) for text in message.trash_tables),
        )

    @property
    def is_on(self) -> bool:
        """Whether there are any patterns."""
        return bool(self.shadow or self.trash)

    def shadow_of(self, table: str) -> str:
        """The name of the table to which the shadow table ``table`` belongs; "" if it is not a shadow table."""
        return _own(self.shadow, table)

    def trash_of(self, table: str) -> str:
        """The name of the table to which the trash table ``table`` belongs; "" if it is not a trash table."""
        return _own(self.trash, table)

    def own(self, table: str) -> str:
        """The name of the table to which the shadow or trash table ``table`` belongs; "" for an ordinary table."""
        return self.shadow_of(table) or self.trash_of(table)


def _compiled(task: str, key: str, text: str) -> Regex:
    try:
        return compile_regex(text)
    except RegexError as error:
        raise config.PATTERN(task=task, rule=key, pattern=text, reason=error) from error


def _own(rules: tuple[Regex, ...], table: str) -> str:
    for rule in rules:
        found = rule.groups(table)
        if found and found[0]:
            return found[0]
    return ""
