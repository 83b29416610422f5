"""Checks the target with the account that will write there: privileges and existing tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

import pymysql

from shardmerge.proto import config_pb2 as config
from shardmerge.proto import errors
from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.listed_names import listed
from shardmerge.proto.log import get_logger
from shardmerge.worker.binlog.rows.row_filter import is_local
from shardmerge.worker.core.mysql.connection import Session, dialect_of, endpoint_of, errno_of, rows, text_of
from shardmerge.worker.core.mysql.create_table import charset_of
from shardmerge.worker.core.mysql.server_errors import reason_of
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.rules.event_filter import EventFilterRules
from shardmerge.worker.target.members.target_members import read_target_members
from shardmerge.worker.target.tables.target_table import check_existing_target, created_collations, known_fallbacks
from shardmerge.worker.unit.run_context import who_of
from shardmerge.worker.verify.precheck.findings import Checklist, failed, warned, what_to_correct
from shardmerge.worker.verify.precheck.source.grants import Grants
from shardmerge.worker.verify.precheck.source.server import read_grants
from shardmerge.worker.verify.precheck.target.expressions import check_expressions

log = get_logger()

_SHOWN_COLUMNS = 10

WRITES = ("SELECT", "INSERT", "UPDATE", "DELETE")
"""Privileges for writing rows."""

CREATES = ("CREATE",)
"""Further privileges for creating a missing target table."""

META = ("CREATE", *WRITES)
"""Privileges for the task's own records."""

EVALUATES = ("CREATE TEMPORARY TABLES",)
"""Further privileges for expressions that the target evaluates."""

DDL = ("ALTER", "CREATE", "DROP", "INDEX")
"""Privileges for the sources' DDL, on the target tables and on their copies among the task's records."""

INDEXES = ("ALTER", "INDEX")
"""Privileges for adding secondary indexes after the load."""


_WAYS_OUT = {
    errors.replicate.TARGET_TABLE_DIFFERS.code: "ALTER the target table so that it holds every value of all its shard "
    "tables and has a unique key over the mapped key, or correct the column mapping in the task file; then check-task "
    "again. Do not drop or empty a table that has rows: those of other sources would be lost.",
    errors.replicate.TARGET_NOT_TRANSACTIONAL.code: "ALTER TABLE … ENGINE=InnoDB at the target; then check-task again.",
}
"""Of errors by which a running task is paused: here there is no task to resume."""

_WHILE_TABLES_WAIT = (
    "Shard tables wait for each other at a sharding DDL of this target, which may give it what is missing: `dmctl "
    "shard-ddl-lock {task}` lists the tables that have not reached it. Run the statement there, and give this command "
    "again when the lock has ended. Otherwise: {otherwise}"
)


def check_target_server(
    checklist: Checklist, session: Session, plans: Sequence[TablePlan], subtask: config.SubTaskConfig
) -> None:
    """Check the privileges and the target tables that already exist."""
    merged: dict[tuple[str, str], list[TablePlan]] = {}
    for plan in plans:
        merged.setdefault((plan.target_schema, plan.target_table), []).append(plan)
    groups = list(merged.values())
    checklist.run("target_privilege", lambda: _privileges(checklist.source, session, groups, subtask))
    checklist.run("schema_of_shard_tables", lambda: _tables(who_of(subtask), session, groups))


def _privileges(
    source: str, session: Session, groups: list[list[TablePlan]], subtask: config.SubTaskConfig
) -> Iterator[pb.CheckResult]:
    meta_schema = subtask.meta_schema or "dm_meta"
    grants = read_grants(session)
    if not grants.lines:
        # TiDB and proxies may print grants in a form that is not understood here; the task reports a missing privilege
        # when it starts.
        yield failed(
            "target_privilege",
            source,
            errors.check.CHECK_BROKEN(
                server="target",
                reason="SHOW GRANTS names no privilege",
                way_out=f"{grants.schema_statement(META, meta_schema)} If the account has it, leave the item out "
                "with `ignore-checking-items`.",
            ),
        )
        return
    missing: list[str] = []
    statements: list[str] = []
    schemas = sorted({group[0].target_schema for group in groups})
    evaluating = not all(is_local(plan) for group in groups for plan in group)
    for schema in [meta_schema, *(each for each in schemas if each != meta_schema)]:
        if schema == meta_schema:
            lacking = grants.lacks(META + EVALUATES if evaluating else META, schema)
        else:
            lacking = _missing_privileges(
                grants, session, [group[0] for group in groups if group[0].target_schema == schema]
            )
        if lacking:
            missing.append(f"{', '.join(lacking)} on {schema}")
            statements.append(grants.schema_statement(lacking, schema))
    if missing:
        yield failed(
            "target_privilege",
            source,
            errors.check.PRIVILEGE(
                server="target", user=grants.account, missing="; ".join(missing), grant="\n".join(statements)
            ),
        )

    yield from _for_ddl(source, grants, groups, subtask, meta_schema)


def _for_ddl(
    source: str, grants: Grants, groups: list[list[TablePlan]], subtask: config.SubTaskConfig, meta_schema: str
) -> Iterator[pb.CheckResult]:
    """A warning: without these privileges a task runs until the first DDL. A failure with a `shard-mode`, which is for
    such statements. A statement that filters skip changes the structures among the records, but not the target."""
    follows = subtask.mode != config.TASK_MODE_FULL
    filters = EventFilterRules.from_config(subtask)
    lacking: dict[str, dict[str, None]] = {}
    stops = False
    if follows:
        lacking[meta_schema] = dict.fromkeys(grants.lacks(DDL, meta_schema))
        stops = subtask.shard_mode != config.SHARD_MODE_NONE and bool(lacking[meta_schema])
    for group in groups:
        first = group[0]
        altered = follows and not all(filters.skips_structure(one.table.schema, one.table.name) for one in group)
        at_target = DDL if altered else INDEXES if subtask.load.defer_indexes else ()
        wanted = grants.lacks(at_target, first.target_schema, first.target_table)
        stops = stops or (altered and subtask.shard_mode != config.SHARD_MODE_NONE and bool(wanted))
        lacking.setdefault(first.target_schema, {}).update(dict.fromkeys(wanted))
    missing = {schema: list(some) for schema, some in sorted(lacking.items()) if some}
    if missing:
        found = errors.check.PRIVILEGE_FOR_DDL(
            user=grants.account,
            missing="; ".join(f"{', '.join(some)} on {schema}" for schema, some in missing.items()),
            grant="\n".join(grants.schema_statement(some, schema) for schema, some in missing.items()),
        )
        report = failed if stops else warned
        yield report("target_privilege", source, found)


def _missing_privileges(grants: Grants, session: Session, firsts: list[TablePlan]) -> list[str]:
    """The privileges that are missing for the target tables of one schema; CREATE only if a table must be created."""
    schema = firsts[0].target_schema
    found = rows(session, "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s", (schema,))
    there = {text_of(name).lower() for (name,) in found}
    lacking: dict[str, None] = {}
    for plan in firsts:
        table = plan.target_table
        if table.lower() in there:
            lacking.update(dict.fromkeys(grants.lacks(WRITES, schema, table)))
        else:
            lacking.update(dict.fromkeys(grants.lacks((*WRITES, *CREATES), schema)))
    return list(lacking)


def _tables(who: SubtaskKey, session: Session, groups: list[list[TablePlan]]) -> Iterator[pb.CheckResult]:
    source, waiting = who.source, cache(lambda: _targets_with_waiting_tables(session, who))
    yield from check_expressions(source, session, [plan for group in groups for plan in group])
    for plans in groups:
        reason: str
        try:
            will_be_made = check_existing_target(session, plans) is None
            yield from _collations(source, session, plans, will_be_made=will_be_made)
            if will_be_made:
                yield from _types(source, session, plans)
            continue
        except ShardmergeError as error:
            reason, way_out = str(error), _WAYS_OUT.get(error.spec.code, error.workaround)
            if error.spec is errors.replicate.TARGET_TABLE_DIFFERS and plans[0].target in waiting():
                way_out = _WHILE_TABLES_WAIT.format(task=who.task, otherwise=way_out)
        except pymysql.MySQLError as error:
            name = f"{plans[0].target_schema}.{plans[0].target_table}"
            reason = f"{name} cannot be read: {reason_of(error)} (errno {errno_of(error)})"
            way_out = what_to_correct(error, "; then check-task again.")
        yield failed("schema_of_shard_tables", source, errors.check.TARGET_TABLE(reason=reason, way_out=way_out))


def _targets_with_waiting_tables(session: Session, who: SubtaskKey) -> frozenset[TargetTable]:
    """The targets whose shard tables wait for each other at a sharding DDL of the task. Empty where its records cannot
    be read: it has none before its first start."""
    try:
        members = read_target_members(session, who, of_task_alone=True)
    except (pymysql.MySQLError, ShardmergeError) as error:
        log.warning("records are not read for a check", task=who.task, source=who.source, error=str(error))
        return frozenset()
    return frozenset(plan.target for plan in members.parked)


def _types(source: str, session: Session, plans: list[TablePlan]) -> Iterator[pb.CheckResult]:
    """Find columns that no column of the target can hold."""
    dialect = dialect_of(session)
    lacking = {
        f"{item.target_name} ({item.column.type_text})": None
        for plan in plans
        for item in plan.columns
        if dialect.lacks_type(item.column.type_text)
    }
    if lacking:
        table = f"{plans[0].target_schema}.{plans[0].target_table}"
        found = errors.check.TARGET_TYPE(target=table, columns=listed(list(lacking), _SHOWN_COLUMNS))
        yield failed("schema_of_shard_tables", source, found)


def _collations(
    source: str, session: Session, plans: list[TablePlan], *, will_be_made: bool
) -> Iterator[pb.CheckResult]:
    """Find character sets that the target lacks, and collations that it will replace when it creates the table."""
    table = f"{plans[0].target_schema}.{plans[0].target_table}"
    found = known_fallbacks(session, {collation for plan in plans for collation in plan.table.collations})
    missing = sorted({charset_of(collation) for collation, other in found.items() if other is None})
    if missing:
        yield failed(
            "schema_of_shard_tables",
            source,
            errors.check.TARGET_CHARSET(target=table, charsets=", ".join(missing)),
        )
    if not will_be_made:
        return
    replaced = [f"{other} for {collation}" for collation, other in found.items() if other is not None]
    # The table is created like the first one: see make_plans in worker/target/tables/make_targets.py.
    first = plans[0].table
    created = created_collations(session, first.collations)
    if replaced and endpoint_of(session).strict_collations:
        yield failed(
            "schema_of_shard_tables",
            source,
            errors.check.TARGET_COLLATION_STRICT(target=table, replaced=", ".join(replaced)),
        )
    elif created:
        yield warned(
            "schema_of_shard_tables",
            source,
            errors.check.TARGET_COLLATION(
                target=table,
                source=source,
                table=f"{first.schema}.{first.name}",
                replaced=", ".join(f"{other} for {collation}" for collation, other in created.items()),
            ),
        )
