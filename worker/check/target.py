"""Checks at the target, as the user that will write there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pymysql

from proto import config_pb2 as config
from proto import errors
from proto import worker_pb2 as pb
from proto.errors import ShardmergeError
from worker.check.expressions import check_expressions
from worker.check.findings import Checklist, failed, warned
from worker.check.grants import Grants
from worker.check.source import read_grants
from worker.connection import Session, errno_of, rows, text_of
from worker.plan import TablePlan
from worker.rowstage.drops import evaluated_here
from worker.target_table import compare_target, find_stand_ins
from worker.trouble import reason_of

WRITES = ("SELECT", "INSERT", "UPDATE", "DELETE")
"""What moving rows takes."""

CREATES = ("CREATE",)
"""What a missing target table takes besides."""

META = ("CREATE", *WRITES)
"""What the task's own records take."""


EVALUATES = ("CREATE TEMPORARY TABLES",)
"""What expressions take, besides, that are not evaluated here."""

DDL = ("ALTER", "CREATE", "DROP", "INDEX")
"""What the sources' DDL takes, at the target tables and at their copies among the task's records."""

INDEXES = ("ALTER", "INDEX")
"""What secondary indexes take that are added after the load."""


def check_target(
    checklist: Checklist, session: Session, plans: Sequence[TablePlan], subtask: config.SubTaskConfig
) -> None:
    """Privileges, and target tables that exist already."""
    merged: dict[tuple[str, str], list[TablePlan]] = {}
    for plan in plans:
        merged.setdefault((plan.target_schema, plan.target_table), []).append(plan)
    groups = list(merged.values())
    checklist.run("target_privilege", lambda: _privileges(checklist.source, session, groups, subtask))
    checklist.run("schema_of_shard_tables", lambda: _tables(checklist.source, session, groups))


def _privileges(
    source: str, session: Session, groups: list[list[TablePlan]], subtask: config.SubTaskConfig
) -> Iterator[pb.CheckResult]:
    meta_schema = subtask.meta_schema or "dm_meta"
    grants = read_grants(session)
    if not grants.lines:
        # TiDB and proxies may print what is not understood here; the task says what it lacks when it starts.
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
    evaluating = not all(evaluated_here(plan) for group in groups for plan in group)
    for schema in [meta_schema, *(each for each in schemas if each != meta_schema)]:
        if schema == meta_schema:
            lacking = grants.lacks(META + EVALUATES if evaluating else META, schema)
        else:
            lacking = _lacking(grants, session, [group[0] for group in groups if group[0].target_schema == schema])
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
    """A task without these runs until the first DDL comes."""
    follows = subtask.mode != config.TASK_MODE_FULL
    at_target = DDL if follows else INDEXES if subtask.load.defer_indexes else ()
    lacking: dict[str, dict[str, None]] = {}
    if follows:
        lacking[meta_schema] = dict.fromkeys(grants.lacks(DDL, meta_schema))
    for group in groups:
        first = group[0]
        wanted = grants.lacks(at_target, first.target_schema, first.target_table)
        lacking.setdefault(first.target_schema, {}).update(dict.fromkeys(wanted))
    missing = {schema: list(some) for schema, some in sorted(lacking.items()) if some}
    if missing:
        told = errors.check.PRIVILEGE_FOR_DDL(
            user=grants.account,
            missing="; ".join(f"{', '.join(some)} on {schema}" for schema, some in missing.items()),
            grant="\n".join(grants.schema_statement(some, schema) for schema, some in missing.items()),
        )
        yield warned("target_privilege", source, told)


def _lacking(grants: Grants, session: Session, firsts: list[TablePlan]) -> list[str]:
    """What is missing for the target tables of one schema; CREATE counts only where a table is to be made."""
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


def _tables(source: str, session: Session, groups: list[list[TablePlan]]) -> Iterator[pb.CheckResult]:
    yield from check_expressions(source, session, [plan for group in groups for plan in group])
    for plans in groups:
        reason: str
        try:
            yield from _collations(source, session, plans, will_be_made=compare_target(session, plans) is None)
            continue
        except ShardmergeError as error:
            reason, way_out = str(error), error.workaround
        except pymysql.MySQLError as error:
            name = f"{plans[0].target_schema}.{plans[0].target_table}"
            reason = f"{name} cannot be looked at: {reason_of(error)} (errno {errno_of(error)})"
            way_out = "Grant what the server's message names."
        yield failed("schema_of_shard_tables", source, errors.check.TARGET_TABLE(reason=reason, way_out=way_out))


def _collations(
    source: str, session: Session, plans: list[TablePlan], *, will_be_made: bool
) -> Iterator[pb.CheckResult]:
    """What the target cannot write text of, or make the table with."""
    table = f"{plans[0].target_schema}.{plans[0].target_table}"
    found = find_stand_ins(session, {collation for plan in plans for collation in plan.table.collations})
    missing = sorted({collation.split("_", 1)[0] for collation, other in found.items() if other is None})
    if missing:
        yield failed(
            "schema_of_shard_tables",
            source,
            errors.check.TARGET_CHARSET(target=table, charsets=", ".join(missing)),
        )
    replaced = [f"{other} for {collation}" for collation, other in found.items() if other is not None]
    if replaced and will_be_made:
        yield warned(
            "schema_of_shard_tables",
            source,
            errors.check.TARGET_COLLATION(target=table, replaced=", ".join(replaced)),
        )
