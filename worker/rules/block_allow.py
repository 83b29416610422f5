"""Block-allow list: which schemas and tables take part at all."""

from __future__ import annotations

from dataclasses import dataclass

from proto import config_pb2 as pb
from proto.config.pattern import Pattern
from worker.rules.selector import Selector, compiled, selector


@dataclass(frozen=True, slots=True)
class BlockAllow:
    """MySQL's replication filter rules, as DM applies them (docs: "Block and Allow Table Lists")."""

    do_dbs: tuple[Pattern, ...] = ()
    ignore_dbs: tuple[Pattern, ...] = ()
    do_tables: tuple[Selector, ...] = ()
    ignore_tables: tuple[Selector, ...] = ()

    @staticmethod
    def from_config(task: str, message: pb.BlockAllowList, case_sensitive: bool) -> BlockAllow:
        """Compile the list; raises ``config.PATTERN``."""
        name = f"block-allow-list {message.name}"

        def schemas(texts: list[str]) -> tuple[Pattern, ...]:
            return tuple(compiled(task, name, text, case_sensitive) for text in texts)

        def tables(names: list[pb.TableName]) -> tuple[Selector, ...]:
            return tuple(selector(task, name, each.schema, each.table, case_sensitive) for each in names)

        return BlockAllow(
            schemas(list(message.do_dbs)),
            schemas(list(message.ignore_dbs)),
            tables(list(message.do_tables)),
            tables(list(message.ignore_tables)),
        )

    def passes(self, schema: str, table: str) -> bool:
        """Whether the table takes part.

        First the schema: with do-dbs it must be in one of them, else it must be in no ignore-dbs. Then the
        table: in do-tables yes, else in ignore-tables no, else only if there are no do-tables.
        """
        if not self._schema_passes(schema):
            return False
        if any(rule.matches(schema, table) for rule in self.do_tables):
            return True
        if any(rule.matches(schema, table) for rule in self.ignore_tables):
            return False
        return not self.do_tables

    def may_pass(self, schema: str) -> bool:
        """Whether some table of the schema could take part; True when in doubt."""
        if not self._schema_passes(schema):
            return False
        return not self.do_tables or any(rule.schema.matches(schema) for rule in self.do_tables)

    def _schema_passes(self, schema: str) -> bool:
        if self.do_dbs:
            return any(pattern.matches(schema) for pattern in self.do_dbs)
        return not any(pattern.matches(schema) for pattern in self.ignore_dbs)
