"""Checks the tables that the rules let through."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pymysql

from shardmerge.proto import errors
from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.worker.core.mysql.connection import quote_name, rows, server_info, text_of
from shardmerge.worker.core.mysql.information_schema import inspect_tables, list_sequences, list_tables
from shardmerge.worker.core.mysql.server_errors import ErrorKind, errno_of, kind_of
from shardmerge.worker.core.mysql.show_create import read_create_texts
from shardmerge.worker.core.sql.foreign_keys import cascading_keys
from shardmerge.worker.core.sql.table_text import UnreadableCreateTable
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.rules import Rules, check_partitions
from shardmerge.worker.rules.cascades import FoundCascades, find_cascades, marked_cascaded
from shardmerge.worker.target.tables.partition_clause import (
    PartitionClause,
    clause_of,
    differing_clauses,
    problem_of,
)
from shardmerge.worker.verify.precheck.findings import Checklist, abbreviated, failed, warned
from shardmerge.worker.verify.precheck.source.server import ConnectedSource

# A SELECT from these engines does not read one consistent state.
_NOT_TRANSACTIONAL = frozenset({"myisam", "aria", "memory", "csv", "archive", "blackhole", "mrg_myisam", "federated"})


_FIRST_MYSQL = (8, 0, 0)


@dataclass(frozen=True, slots=True)
class Derives:
    """``case_sensitive``: whether names that differ in case are different tables."""

    case_sensitive: bool


@dataclass(frozen=True, slots=True)
class TablesView:
    """The routed tables: their names, the structures that could be read, plans or errors.

    ``sequences``: those that the rules let through. ``shadows``: tables that a tool for online schema changes created
    for these. ``visible``: how many tables the user can see at all.
    """

    names: tuple[tuple[str, str], ...]
    shadows: tuple[tuple[str, str], ...]
    sequences: tuple[tuple[str, str], ...]
    visible: int
    tables: tuple[Table, ...]
    plans: tuple[TablePlan, ...]
    errors: tuple[ShardmergeError, ...]

    @property
    def schemas(self) -> tuple[str, ...]:
        return tuple(sorted({schema for schema, _ in self.names}))


def read_view(view: ConnectedSource, rules: Rules) -> TablesView:
    """Apply the rules to the source's tables. Raises ``pymysql.MySQLError``."""
    names: list[tuple[str, str]] = []
    shadows: list[tuple[str, str]] = []
    refused: list[ShardmergeError] = []
    visible = list_tables(view.session)
    for schema, name in visible:
        own = rules.online.own(name)
        try:
            if rules.route(schema, name) is not None:
                names.append((schema, name))
            elif own and rules.route(schema, own) is not None:
                shadows.append((schema, name))
        except ShardmergeError as error:
            refused.append(error)
    tables: list[Table] = []
    plans: list[TablePlan] = []
    for table in inspect_tables(view.session, names, source=view.source_id):
        if isinstance(table, ShardmergeError):
            refused.append(table)
            continue
        tables.append(table)
        try:
            plans.append(rules.plan(len(plans), view.source_id, table))
        except ShardmergeError as error:
            refused.append(error)
    sequences = tuple(pair for pair in list_sequences(view.session) if _lets_through(rules, pair))
    return TablesView(
        tuple(names), tuple(shadows), sequences, len(visible), tuple(tables), tuple(plans), tuple(refused)
    )


def _lets_through(rules: Rules, name: tuple[str, str]) -> bool:
    """Whether the rules let a sequence of this name through; also if they contradict each other."""
    try:
        return rules.route(*name) is not None
    except ShardmergeError:
        return True


def check_tables(
    checklist: Checklist, view: ConnectedSource, tables: TablesView, *, snapshot: bool, derives: Derives | None = None
) -> None:
    """``snapshot``: the task copies existing rows (not task-mode incremental). ``derives``: the rows that foreign keys
    change by cascade are derived; None: such keys are refused."""
    checklist.run("dump_privilege", lambda: _dump_privilege(view, tables))
    checklist.run("online_ddl", lambda: _online_ddl(view, tables))
    checklist.run("table_schema", lambda: _table_schema(view, tables, snapshot, derives))
    checklist.run("primary_key", lambda: _primary_key(view, tables))


def _online_ddl(view: ConnectedSource, tables: TablesView) -> Iterator[pb.CheckResult]:
    if tables.shadows:
        names = [f"{schema}.{name}" for schema, name in tables.shadows]
        found = errors.check.ONLINE_DDL_TABLES(source=view.source_id, tables=abbreviated(names))
        yield warned("online_ddl", view.source_id, found)


def _dump_privilege(view: ConnectedSource, tables: TablesView) -> Iterator[pb.CheckResult]:
    """Select no row from each table, so that the server itself interprets its grants."""
    source, grants = view.source_id, view.grants
    unreadable: dict[str, list[str]] = {}
    for schema, name in tables.names:
        try:
            rows(view.session, f"SELECT * FROM {quote_name(schema)}.{quote_name(name)} LIMIT 0")
        except pymysql.MySQLError as error:
            if kind_of(errno_of(error)) is not ErrorKind.PRIVILEGE:
                raise
            unreadable.setdefault(schema, []).append(f"{schema}.{name}")
    if unreadable:
        names = [name for in_schema in unreadable.values() for name in in_schema]
        yield failed(
            "dump_privilege",
            source,
            errors.check.PRIVILEGE(
                server=f"source {source}",
                user=grants.account,
                missing=f"SELECT on {abbreviated(names)}",
                grant="\n".join(grants.schema_statement(["SELECT"], schema) for schema in unreadable),
            ),
        )
    # information_schema shows only tables on which the user has a privilege: a schema with grants on single tables
    # may have shard tables that this user cannot see.
    partly = [s for s in tables.schemas if s not in unreadable and not grants.has("SELECT", s)]
    if partly:
        yield warned(
            "dump_privilege",
            source,
            errors.check.HIDDEN_TABLES(
                source=source,
                user=grants.account,
                schemas=abbreviated(partly),
                grant="\n".join(grants.schema_statement(["SELECT"], schema) for schema in partly),
            ),
        )


def _table_schema(
    view: ConnectedSource, tables: TablesView, snapshot: bool, derives: Derives | None
) -> Iterator[pb.CheckResult]:
    source = view.source_id
    if not tables.names and not tables.errors:
        yield failed(
            "table_schema",
            source,
            errors.check.NO_TABLES(
                source=source,
                count=tables.visible,
                user=view.grants.account,
                grant=view.grants.statement(["SELECT"], "*.*"),
            ),
        )
        return
    for error in tables.errors:
        yield failed("table_schema", source, _as_check_error(error))
    try:
        check_partitions(tables.plans)
    except ShardmergeError as error:
        yield failed("table_schema", source, _as_check_error(error))
    yield from _sequences(view, tables)
    yield from _partitions(view, tables)
    if derives is not None:
        refused = _not_derivable(view, tables, derives)
        if refused:
            found = errors.check.CASCADES_INEXACT(source=source, keys="; ".join(refused))
            yield failed("table_schema", source, found)
    elif cascading := _cascading(view, tables):
        yield failed("table_schema", source, _listed(errors.check.CASCADES, source, cascading))
    plain = [table_name(table) for table in tables.tables if table.engine.lower() in _NOT_TRANSACTIONAL]
    if plain:
        report = failed if snapshot else warned
        yield report("table_schema", source, _listed(errors.check.NOT_TRANSACTIONAL, source, plain))


def _sequences(view: ConnectedSource, tables: TablesView) -> Iterator[pb.CheckResult]:
    """A sequence's numbers are logged as rows of a table that is none."""
    if not tables.sequences:
        return
    defaults = rows(
        view.session,
        "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, COLUMN_DEFAULT FROM information_schema.COLUMNS "
        "WHERE TABLE_SCHEMA IN %s AND COLUMN_DEFAULT LIKE '%%nextval(%%'",
        (tables.schemas or ("",),),
    )
    names = set(tables.names)
    used: list[tuple[tuple[str, str], str]] = []
    unused: list[tuple[tuple[str, str], str]] = []
    for schema, name in tables.sequences:
        quoted = TargetTable(schema, name).quoted
        users = [
            f"{text_of(each[0])}.{text_of(each[1])}.{text_of(each[2])}"
            for each in defaults
            if quoted in text_of(each[3]) and (text_of(each[0]), text_of(each[1])) in names
        ]
        shown = f"{schema}.{name}" + (f" (the default of {abbreviated(users)})" if users else "")
        (used if users else unused).append(((schema, name), shown))
    for found, report in ((used, failed), (unused, warned)):
        if found:
            error = errors.check_data.SEQUENCES_LET_THROUGH(
                source=view.source_id,
                sequences=abbreviated([shown for _, shown in found]),
                entries=", ".join(f'{{db-name: "{schema}", tbl-name: "{name}"}}' for (schema, name), _ in found),
            )
            yield report("table_schema", view.source_id, error)


def _partitions(view: ConnectedSource, tables: TablesView) -> Iterator[pb.CheckResult]:
    """Whether the targets of a task with `partitions: keep` can have the partitions of their shard tables."""
    plans = [plan for plan in tables.plans if plan.keep_partitions]
    names = [(plan.table.schema, plan.table.name) for plan in plans]
    of_targets: dict[str, dict[str, PartitionClause | None]] = {}
    problems: dict[tuple[str, str], list[str]] = {}
    for plan, creation in zip(plans, read_create_texts(view.session, names) if plans else (), strict=True):
        target = f"{plan.target_schema}.{plan.target_table}"
        try:
            clause = clause_of(creation, [column.name for column in plan.table.columns])
            of_targets.setdefault(target, {})[table_name(plan.table)] = clause
            problem = problem_of(clause, plan) if clause is not None else ""
        except UnreadableCreateTable as error:
            problem = str(error)
        if problem:
            problems.setdefault((target, problem), []).append(table_name(plan.table))
    for (target, problem), found in problems.items():
        refused = errors.check_data.PARTITIONS_NOT_KEPT(
            source=view.source_id, target=target, tables=abbreviated(found), reason=problem
        )
        yield failed("table_schema", view.source_id, refused)
    for target, clauses in of_targets.items():
        groups = differing_clauses(clauses)
        if groups:
            shown = "; ".join(f"{abbreviated(found)}: {text or 'no partitions'}" for text, found in groups)
            differ = errors.check_data.PARTITIONS_DIFFER(source=view.source_id, target=target, groups=shown)
            yield failed("table_schema", view.source_id, differ)


def _primary_key(view: ConnectedSource, tables: TablesView) -> Iterator[pb.CheckResult]:
    keyless = [table_name(plan.table) for plan in tables.plans if not plan.key]
    if keyless:
        yield warned("primary_key", view.source_id, _listed(errors.check.NO_KEY, view.source_id, keyless))


def table_name(table: Table) -> str:
    return f"{table.schema}.{table.name}"


def _listed(spec: ErrorSpec, source: str, names: list[str]) -> ShardmergeError:
    return spec(source=source, tables=abbreviated(names))


def _as_check_error(error: ShardmergeError) -> ShardmergeError:
    """The error itself if it is of the check class; else (an error of the rules) a check error that contains it."""
    if error.spec.error_class == "check":
        return error
    return errors.check.RULES(reason=str(error), way_out=error.workaround)


def _cascading(view: ConnectedSource, tables: TablesView) -> list[str]:
    """Tables whose rows the storage engine changes by itself, without logging the changes.

    Source: MySQL 8.4 Reference Manual, "FOREIGN KEY Constraints": cascaded operations are not logged.
    """
    names = sorted((table.schema, table.name) for table in tables.tables)
    return [
        f"{schema}.{table} ({key})"
        for (schema, table), creation in zip(names, read_create_texts(view.session, names), strict=True)
        for key in cascading_keys(creation)
    ]


def with_cascades_marked(view: ConnectedSource, tables: TablesView, derives: Derives) -> TablesView:
    """``tables``, with the plans of those marked whose rows are changed by cascade: they are read at one position."""
    return replace(tables, plans=marked_cascaded(tables.plans, _find(view, tables, derives).keys))


def _find(view: ConnectedSource, tables: TablesView, derives: Derives) -> FoundCascades:
    names = [(plan.table.schema, plan.table.name) for plan in tables.plans]
    creations = read_create_texts(view.session, names)
    texts = {plan.shard: creation for plan, creation in zip(tables.plans, creations, strict=True)}
    return find_cascades(tables.plans, texts, case_sensitive=derives.case_sensitive)


def _not_derivable(view: ConnectedSource, tables: TablesView, derives: Derives) -> list[str]:
    """The cascading foreign keys whose changes cannot be derived, with the reasons."""
    found = _find(view, tables, derives)
    refused = [item.text for item in found.refused]
    info = server_info(view.session)
    if found.keys.keys and not info.is_mariadb and info.version < _FIRST_MYSQL:
        # Before, a statement on the parent takes no lock of the child: no position is certain for the child's rows.
        refused.append("the source is older than MySQL 8.0; upgrade it")
    return refused
