"""The block-allow list: which schemas and tables take part."""

from __future__ import annotations

from dataclasses import dataclass

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto.config.rules.pattern import Pattern
from shardmerge.proto.config.rules.selector import Selector, compiled, selector


@dataclass(frozen=True, slots=True)
class BlockAllowVerdict:
    """Whether a table takes part, and the key and entry of the file that decided, as a phrase."""

    passes: bool
    why: str


@dataclass(frozen=True, slots=True)
class BlockAllowRules:
    """MySQL's replication filter rules, as DM applies them (docs: "Block and Allow Table Lists")."""

    do_dbs: tuple[Pattern, ...] = ()
    ignore_dbs: tuple[Pattern, ...] = ()
    do_tables: tuple[Selector, ...] = ()
    ignore_tables: tuple[Selector, ...] = ()
    name: str = ""

    @staticmethod
    def from_config(task: str, message: pb.BlockAllowList, case_sensitive: bool) -> BlockAllowRules:
        """Compile the list; raises ``config.PATTERN``."""
        name = f"block-allow-list {message.name}"

        def schemas(texts: list[str]) -> tuple[Pattern, ...]:
            return tuple(compiled(task, name, text, case_sensitive) for text in texts)

        def tables(names: list[pb.TableName]) -> tuple[Selector, ...]:
            return tuple(selector(task, name, each.schema, each.table, case_sensitive) for each in names)

        return BlockAllowRules(
            schemas(list(message.do_dbs)),
            schemas(list(message.ignore_dbs)),
            tables(list(message.do_tables)),
            tables(list(message.ignore_tables)),
            message.name,
        )

    def passes(self, schema: str, table: str) -> bool:
        """Whether the table takes part."""
        return self.judge(schema, table).passes

    def judge(self, schema: str, table: str) -> BlockAllowVerdict:
        """Whether the table takes part, and why.

        First the schema: with do-dbs it must be in one of them, else it must be in no ignore-dbs. Then the
        table: in do-tables yes, else in ignore-tables no, else only if there are no do-tables.
        """
        of_schema = self._judge_schema(schema)
        if not of_schema.passes:
            return of_schema
        for rule in self.do_tables:
            if rule.matches(schema, table):
                return BlockAllowVerdict(True, f"do-tables has {rule.text}")
        for rule in self.ignore_tables:
            if rule.matches(schema, table):
                return BlockAllowVerdict(False, f"ignore-tables has {rule.text}")
        return BlockAllowVerdict(False, "no entry of do-tables matches") if self.do_tables else of_schema

    def may_pass(self, schema: str) -> bool:
        """Whether some table of the schema could take part; True when in doubt."""
        if not self._judge_schema(schema).passes:
            return False
        return not self.do_tables or any(rule.schema.matches(schema) for rule in self.do_tables)

    def _judge_schema(self, schema: str) -> BlockAllowVerdict:
        if self.do_dbs:
            for pattern in self.do_dbs:
                if pattern.matches(schema):
                    return BlockAllowVerdict(True, f"do-dbs has {pattern.text}")
            return BlockAllowVerdict(False, "no entry of do-dbs matches")
        for pattern in self.ignore_dbs:
            if pattern.matches(schema):
                return BlockAllowVerdict(False, f"ignore-dbs has {pattern.text}")
        return BlockAllowVerdict(True, "nothing excludes it")
