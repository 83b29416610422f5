"""Compiles the column mappings: ``partition id``, ``add prefix``, ``add suffix``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto.config.rules.partition_id import ID_BITS, INSTANCE_BITS, SCHEMA_BITS, TABLE_BITS
from shardmerge.proto.config.rules.selector import Ranked, Selector, ranked, selector
from shardmerge.proto.errors import config
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import AddPrefix, AddSuffix, Mapping, PartitionId

_PARTS_BY_BITS = {
    ID_BITS - instance * INSTANCE_BITS - schema * SCHEMA_BITS - table * TABLE_BITS: (instance, schema, table)
    for instance, schema, table in product((False, True), repeat=3)
}
"""The parts of mapped ids (instance, schema, table), by the bits left for the original id, which differ per layout."""


def identifies_shard(mapping: PartitionId) -> tuple[bool, bool, bool]:
    """Whether mapped ids contain the numbers of instance, schema and table."""
    return _PARTS_BY_BITS[mapping.bits]


@dataclass(frozen=True, slots=True)
class MappingRule:
    name: str
    selector: Selector
    column: str
    expression: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ColumnMapper:
    """Pure; ``source`` is only for messages."""

    source: str
    rules: tuple[MappingRule, ...]
    case_sensitive: bool

    @staticmethod
    def from_config(subtask: pb.SubTaskConfig) -> ColumnMapper:
        """Compile the mappings; raises ``config.PATTERN``."""
        return ColumnMapper(
            subtask.source_id,
            tuple(
                MappingRule(
                    rule.name,
                    selector(
                        subtask.task,
                        f"column mapping {rule.name}",
                        rule.schema_pattern,
                        rule.table_pattern,
                        subtask.case_sensitive,
                    ),
                    rule.target_column,
                    rule.expression,
                    tuple(rule.arguments),
                )
                for rule in subtask.column_mappings
            ),
            subtask.case_sensitive,
        )

    @property
    def layouts(self) -> int:
        """How many layouts of merged ids there are in the rules."""
        found = (rule.arguments for rule in self.rules if rule.expression == "partition id")
        return len({tuple(map(bool, (*arguments, "", "", "")[:3])) for arguments in found})

    def mappings(self, table: Table) -> dict[int, Mapping]:
        """The mapping of each mapped column, by its index in the table.

        Raises what :meth:`chosen` raises, ``config.MAPPED_COLUMN_MISSING``, ``config.MAPPED_COLUMN_TYPE`` or
        ``config.PARTITION_NAME``.
        """
        found: dict[int, Mapping] = {}
        for rules in self.chosen(table.schema, table.name):
            rule = rules.best[0]
            index = self._column(rule, table)
            self.check_column(rule, table, table.columns[index])
            found[index] = self._mapping(rule, table.schema, table.name)
        return found

    def mapping_of(self, schema: str, table: str, column: str) -> tuple[MappingRule, Mapping] | None:
        """The mapping of a column of a table by its name, and its rule; None: it has none.

        Raises what :meth:`chosen` raises, and ``config.PARTITION_NAME``.
        """
        for rules in self.chosen(schema, table):
            if rules.best[0].column.lower() == column.lower():
                return rules.best[0], self._mapping(rules.best[0], schema, table)
        return None

    def chosen(self, schema: str, table: str) -> Iterator[Ranked[MappingRule]]:
        """The rules of each mapped column: the most specific one applies, the first of several that agree.

        Raises ``config.AMBIGUOUS_MAPPING``.
        """
        # Column names have no case on any server (MySQL manual, "Identifier Case Sensitivity").
        for name in dict.fromkeys(rule.column.lower() for rule in self.rules):
            rules = ranked([rule for rule in self.rules if rule.column.lower() == name], schema, table)
            if not rules.best:
                continue
            if len({(rule.expression, rule.arguments) for rule in rules.best}) > 1:
                raise config.AMBIGUOUS_MAPPING(
                    source=self.source,
                    schema=schema,
                    table=table,
                    column=rules.best[0].column,
                    rules=", ".join(sorted(rule.name for rule in rules.best)),
                )
            yield rules

    def numbers(self, rule: MappingRule, schema: str, table: str) -> PartitionLayout:
        """The layout of ``partition id`` for the ids of a table. Raises ``config.PARTITION_NAME``."""
        try:
            return partition_layout(schema, table, rule.arguments, self.case_sensitive)
        except ValueError as error:
            raise config.PARTITION_NAME(
                source=self.source, rule=rule.name, schema=schema, table=table, reason=error
            ) from error

    def _column(self, rule: MappingRule, table: Table) -> int:
        for index, column in enumerate(table.columns):
            if column.name.lower() == rule.column.lower() and not column.generated:
                return index
        raise config.MAPPED_COLUMN_MISSING(
            source=self.source, rule=rule.name, column=rule.column, schema=table.schema, table=table.name
        )

    def check_column(self, rule: MappingRule, table: Table, column: Column) -> None:
        """Check that the rule can map the column. Raises ``config.MAPPED_COLUMN_MISSING`` for a generated one, and
        ``config.MAPPED_COLUMN_TYPE``."""
        if column.generated:
            raise config.MAPPED_COLUMN_MISSING(
                source=self.source, rule=rule.name, column=column.name, schema=table.schema, table=table.name
            )
        needed = ValueKind.INTEGER if rule.expression == "partition id" else ValueKind.STRING
        if column.kind is not needed:
            raise config.MAPPED_COLUMN_TYPE(
                source=self.source,
                rule=rule.name,
                expression=rule.expression,
                schema=table.schema,
                table=table.name,
                column=column.name,
                type=column.type_text,
            )

    def _mapping(self, rule: MappingRule, schema: str, table: str) -> Mapping:
        if rule.expression == "add prefix":
            return AddPrefix(rule.arguments[0])
        if rule.expression == "add suffix":
            return AddSuffix(rule.arguments[0])
        return self.numbers(rule, schema, table).partition_id


@dataclass(frozen=True, slots=True)
class PartitionPart:
    """``what``: "instance", "schema" or "table"."""

    what: str
    number: int
    bits: int


@dataclass(frozen=True, slots=True)
class PartitionLayout:
    """The numbers before an id, from bit 62 down, and the ``id_bits`` that remain for it."""

    parts: tuple[PartitionPart, ...]
    id_bits: int

    @property
    def partition_id(self) -> PartitionId:
        prefix, bits = 0, ID_BITS
        for part in self.parts:
            bits -= part.bits
            prefix |= part.number << bits
        return PartitionId(prefix, bits)


def partition_id(schema: str, table: str, arguments: Sequence[str], case_sensitive: bool) -> PartitionId:
    """Like :func:`partition_layout`, in the form that is executed per row."""
    return partition_layout(schema, table, arguments, case_sensitive).partition_id


def partition_layout(schema: str, table: str, arguments: Sequence[str], case_sensitive: bool) -> PartitionLayout:
    """The ``partition id`` of one table's rows.

    ``arguments``: instance number, schema prefix, table prefix and optionally a separator. From bit 62 down:
    4 bits instance, 7 schema, 8 table, the rest for the original id; a part given as "" takes no bits. The
    layout is DM's (docs: "Column Mapping", partition id). Raises ValueError with the reason if a part does not fit.
    """
    instance, schema_prefix, table_prefix, separator = (*arguments, "", "", "", "")[:4]
    parts: list[PartitionPart] = []
    if instance:
        parts.append(PartitionPart("instance", _number("instance", instance, INSTANCE_BITS), INSTANCE_BITS))
    if schema_prefix:
        number = _name_number("schema", schema, schema_prefix, separator, SCHEMA_BITS, case_sensitive)
        parts.append(PartitionPart("schema", number, SCHEMA_BITS))
    if table_prefix:
        number = _name_number("table", table, table_prefix, separator, TABLE_BITS, case_sensitive)
        parts.append(PartitionPart("table", number, TABLE_BITS))
    return PartitionLayout(tuple(parts), ID_BITS - sum(part.bits for part in parts))


def _name_number(what: str, name: str, prefix: str, separator: str, bits: int, case_sensitive: bool) -> int:
    """The number at the end of a name; 0 for a name that is just the prefix."""

    def same(one: str, other: str) -> bool:
        return one == other if case_sensitive else one.lower() == other.lower()

    if same(name, prefix):
        return 0
    start = prefix + separator
    if not same(name[: len(start)], start):
        raise ValueError(f"{what} {name} does not begin with {start}")
    return _number(f"{what} {name}: what follows {start}", name[len(start) :], bits)


def _number(what: str, digits: str, bits: int) -> int:
    if not (digits.isascii() and digits.isdecimal()):
        raise ValueError(f"{what} is not a number: {digits!r}")
    # Leading zeros do not count, and Python refuses to convert thousands of digits.
    significant = digits.lstrip("0") or "0"
    if len(significant) > 3 or int(significant) >= 1 << bits:
        raise ValueError(f"{what} is {digits}, but must be at most {(1 << bits) - 1}")
    return int(significant)
