"""Tables that tools for online schema changes make beside a table, by their names: DM's shadow and trash rules.

Such a tool builds the new table as a shadow table and then lets it take the table's place, whose former self becomes a
trash table (gh-ost, "doc/cheatsheet.md": ``_t_gho``, ``_t_ghc``, ``_t_del``; pt-online-schema-change(1): ``_t_new``,
``_t_old``). Both hold copies of rows that the task has already, so neither takes part by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

from proto import config_pb2 as pb
from proto.config.regex import Regex, RegexError, compile_regex
from proto.errors import config


@dataclass(frozen=True, slots=True)
class OnlineNames:
    """``shadow``, ``trash``: what such names match, the table's own in the first group; () for none. Picklable."""

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
        """Whether any table can be one of these."""
        return bool(self.shadow or self.trash)

    def shadow_of(self, table: str) -> str:
        """The name of the table that the shadow table ``table`` is made beside; "" for one that is none."""
        return _own(self.shadow, table)

    def trash_of(self, table: str) -> str:
        """The name that the trash table ``table`` had or stands for; "" for one that is none."""
        return _own(self.trash, table)

    def own(self, table: str) -> str:
        """The name of the table beside which ``table`` is made; "" for one that is a table by itself."""
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
