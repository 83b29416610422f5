"""Checks that columns which refer to mapped columns have the same mapping: by foreign keys, by the task file's
references, and by names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from shardmerge.proto import errors
from shardmerge.proto import worker_pb2 as pb
from shardmerge.worker.core.mysql.show_create import read_create_texts
from shardmerge.worker.core.sql.foreign_keys import ForeignKey, foreign_keys
from shardmerge.worker.core.table import ValueKind
from shardmerge.worker.core.table_plan import ColumnPlan, Mapping, PartitionId, TablePlan
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.references import ColumnReference
from shardmerge.worker.rules.relations import same_mapping, written
from shardmerge.worker.rules.router import TableRoute
from shardmerge.worker.verify.precheck.findings import Checklist, abbreviated, failed, warned
from shardmerge.worker.verify.precheck.source.server import ConnectedSource
from shardmerge.worker.verify.precheck.tables import table_name

_ITEM = "references"
_DIGITS = re.compile(r"[0-9]+\Z")
_PLAIN = re.compile(r"[^.`:,\[\]{}#&*!|>'\"%@\s]+\Z")


def check_references(
    checklist: Checklist, view: ConnectedSource, rules: Rules, plans: Sequence[TablePlan], *, proposes: bool
) -> None:
    """``proposes``: report columns that refer to mapped ones by their names."""
    checklist.run(_ITEM, lambda: _References(view, rules, plans).findings(proposes=proposes))


class _References:
    """The tables of one source."""

    def __init__(self, view: ConnectedSource, rules: Rules, plans: Sequence[TablePlan]) -> None:
        self._view, self._rules, self._plans = view, rules, plans
        self._source = view.source_id
        self._by_name = {self._rules.references.table_key(plan.table.schema, plan.table.name): plan for plan in plans}
        targets: dict[str, set[str]] = {}
        for plan in plans:
            targets.setdefault(plan.target_table, set()).add(plan.target_schema)
        self._ambiguous = {table for table, schemas in targets.items() if len(schemas) > 1}

    def findings(self, *, proposes: bool) -> Iterator[pb.CheckResult]:
        if not self._rules.mapper.rules:
            return
        yield from self._foreign_keys()
        yield from self._declared()
        if proposes:
            yield from self._candidates()

    # --- foreign keys

    def _foreign_keys(self) -> Iterator[pb.CheckResult]:
        outside: list[str] = []
        unmapped: dict[tuple[str, str, str], list[str]] = {}
        names = [(plan.table.schema, plan.table.name) for plan in self._plans]
        creations = read_create_texts(self._view.session, names)
        for plan, creation in zip(self._plans, creations, strict=True):
            for key in foreign_keys(creation):
                parent = self._by_name.get(self._rules.references.table_key(key.schema or plan.table.schema, key.table))
                if parent is None:
                    outside.extend(_outside(plan, key))
                    continue
                for column, to in zip(key.columns, key.to_columns, strict=True):
                    if not same_mapping(_mapping(plan, column), _mapping(parent, to)):
                        rule = self._rule(plan, column, parent, to)
                        texts = (f"{plan.target_table}.{column}", f"{parent.target_table}.{to}", rule)
                        unmapped.setdefault(texts, []).append(f"{table_name(plan.table)} ({_shown(key)})")
        for (column, to, rule), tables in unmapped.items():
            yield failed(
                _ITEM,
                self._source,
                errors.check.REFERENCE_UNMAPPED(
                    source=self._source, column=column, to=to, tables=abbreviated(tables), rule=rule
                ),
            )
        if outside:
            found = errors.check.REFERENCE_OUTSIDE(source=self._source, keys=abbreviated(outside))
            yield warned(_ITEM, self._source, found)

    def _rule(self, plan: TablePlan, column: str, parent: TablePlan, to: str) -> str:
        """The entry of `references` with which ``column`` gets the mapping of the parent's column."""
        reference = ColumnReference("", plan.target_table, column, parent.target_schema, parent.target_table, to)
        parts = [f"from: {self._column(plan, column)}", f"to: {self._column(parent, to)}"]
        route = TableRoute(plan.target_schema, plan.target_table)
        try:
            derived = self._rules.references.shard(reference, plan.table.schema, plan.table.name, route)
            is_default = (derived.schema, derived.table) == (parent.table.schema, parent.table.name)
        except errors.ShardmergeError:
            is_default = False
        if not is_default:
            parts.append(f"shard-table: {_pattern(parent.table.name, plan.table.name)}")
            if parent.table.schema != plan.table.schema:
                parts.append(f"shard-schema: {_pattern(parent.table.schema, plan.table.schema)}")
        return f"{{{', '.join(parts)}}}"

    def _column(self, plan: TablePlan, column: str) -> str:
        names = [plan.target_table, column]
        if plan.target_table in self._ambiguous:
            names.insert(0, plan.target_schema)
        if all(_PLAIN.match(name) for name in names):
            return ".".join(names)
        return '"' + ".".join(f"`{name.replace('`', '``')}`" for name in names).replace('"', '\\"') + '"'

    # --- the task file's references

    def _declared(self) -> Iterator[pb.CheckResult]:
        for reference in self._rules.references.rules:
            having = [plan for plan in self._plans if reference in self._of(plan)]
            with_column = [plan for plan in having if written(plan, reference.column) is not None]
            if not with_column:
                report = failed if having else warned
                reason = (
                    f"no shard table of {reference.table} has the column {reference.column}"
                    if having
                    else f"no shard table of this source goes to {reference.table}"
                )
                found = errors.check.REFERENCE_COLUMN(source=self._source, reference=reference.text, reason=reason)
                yield report(_ITEM, self._source, found)
                continue
            yield from self._declared_tables(reference, with_column)

    def _declared_tables(self, reference: ColumnReference, plans: Sequence[TablePlan]) -> Iterator[pb.CheckResult]:
        missing: list[str] = []
        without: list[str] = []
        unmapped: list[str] = []
        for plan in plans:
            route = TableRoute(plan.target_schema, plan.target_table)
            shard = self._rules.referred_shard(reference, plan.table.schema, plan.table.name, route)
            parent = self._by_name.get(self._rules.references.table_key(shard.schema, shard.table))
            if parent is None:
                missing.append(f"{table_name(plan.table)} (to {shard.schema}.{shard.table})")
            elif written(parent, reference.to_column) is None:
                without.append(table_name(parent.table))
            elif _mapping(parent, reference.to_column) is None:
                unmapped.append(table_name(parent.table))
        if missing:
            yield failed(
                _ITEM,
                self._source,
                errors.check.REFERENCE_TABLE(
                    source=self._source, reference=reference.text, tables=abbreviated(missing)
                ),
            )
        if without:
            reason = f"{abbreviated(without)} has no column {reference.to_column}"
            found = errors.check.REFERENCE_COLUMN(source=self._source, reference=reference.text, reason=reason)
            yield failed(_ITEM, self._source, found)
        if unmapped:
            found = errors.check.REFERENCE_TO_UNMAPPED(
                source=self._source,
                reference=reference.text,
                column=reference.to_column,
                tables=abbreviated(list(dict.fromkeys(unmapped))),
            )
            yield failed(_ITEM, self._source, found)

    def _of(self, plan: TablePlan) -> tuple[ColumnReference, ...]:
        return tuple(self._rules.references.of(TableRoute(plan.target_schema, plan.target_table)))

    # --- names

    def _candidates(self) -> Iterator[pb.CheckResult]:
        parents: dict[str, tuple[TablePlan, str]] = {}
        for plan in self._plans:
            for column in (plan.columns[at] for at in plan.key):
                if isinstance(column.mapping, PartitionId) and not self._refers(plan, column):
                    for name in candidate_names(plan.target_table, column.target_name):
                        parents.setdefault(name, (plan, column.target_name))
        found: dict[str, str] = {}
        for plan in self._plans:
            for column in plan.columns:
                if column.mapping is not None or column.index < 0 or column.column.kind is not ValueKind.INTEGER:
                    continue
                parent = parents.get(column.target_name.lower()) or self._self_reference(plan, column)
                if parent is not None and not self._refers(plan, column):
                    rule = self._rule(plan, column.target_name, *self._near(plan, *parent))
                    found.setdefault(f"{plan.target_table}.{column.target_name}", rule)
        if found:
            yield warned(
                _ITEM,
                self._source,
                errors.check.REFERENCE_CANDIDATES(
                    source=self._source,
                    columns=abbreviated(list(found)),
                    rules="\n".join(f"- {rule}" for rule in found.values()),
                ),
            )

    def _self_reference(self, plan: TablePlan, column: ColumnPlan) -> tuple[TablePlan, str] | None:
        """``parent_id`` beside ``id``."""
        own = [each for each in (plan.columns[at] for at in plan.key) if isinstance(each.mapping, PartitionId)]
        name = column.target_name.lower()
        return next(
            ((plan, each.target_name) for each in own if name == f"parent_{each.target_name.lower()}"),
            None,
        )

    def _near(self, plan: TablePlan, parent: TablePlan, column: str) -> tuple[TablePlan, str]:
        """Of the parent's target, the shard table that belongs to ``plan`` by its name, if one does."""
        merged = [each for each in self._plans if each.target_name == parent.target_name]
        here = [each for each in merged if each.table.schema == plan.table.schema] or merged
        number = _DIGITS.search(plan.table.name)
        same = [each for each in here if number is not None and _DIGITS.search(each.table.name) is not None]
        alike = [each for each in same if number is not None and each.table.name.endswith(number.group())]
        return (alike or here)[0], column

    def _refers(self, plan: TablePlan, column: ColumnPlan) -> bool:
        """Whether a reference of the task file is for the column."""
        return any(rule.column.lower() == column.target_name.lower() for rule in self._of(plan))


def candidate_names(table: str, column: str) -> frozenset[str]:
    """Lower-case names that a column has by custom if it refers to ``table``.``column``. Pure."""
    table, column = table.lower(), column.lower()
    stems = {table}
    if table.endswith("ies"):
        stems.add(f"{table[:-3]}y")
    if table.endswith("es"):
        stems.add(table[:-2])
    if table.endswith("s"):
        stems.add(table[:-1])
    return frozenset(f"{stem}{between}{column}" for stem in stems if stem for between in ("_", ""))


def _mapping(plan: TablePlan, column: str) -> Mapping | None:
    found = written(plan, column)
    return None if found is None else found.mapping


def _outside(plan: TablePlan, key: ForeignKey) -> Iterator[str]:
    """The columns of a foreign key to a table outside the task."""
    to = f"{key.schema or plan.table.schema}.{key.table}"
    for column, to_column in zip(key.columns, key.to_columns, strict=True):
        yield f"{table_name(plan.table)}.{column} ({key.name} to {to}.{to_column})"


def _pattern(name: str, child: str) -> str:
    """The name of a shard table, with `*` for the digits at its end if ``child``'s name ends with the same digits."""
    here, there = _DIGITS.search(name), _DIGITS.search(child)
    if here is not None and there is not None and here.group() == there.group():
        name = f"{name[: here.start()]}*"
    return f'"{name}"'


def _shown(key: ForeignKey) -> str:
    return f"{key.name} to {key.table}"
