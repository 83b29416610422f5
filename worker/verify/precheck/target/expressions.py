"""Checks whether the target understands the filter expressions that it has to evaluate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pymysql

from shardmerge.proto import errors
from shardmerge.proto import worker_pb2 as pb
from shardmerge.worker.binlog.rows.row_filter import is_local
from shardmerge.worker.core.mysql.connection import Session, dialect_of, errno_of, rows
from shardmerge.worker.core.mysql.server_errors import reason_of
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.rules.stage.server_filter import (
    EvaluationFailed,
    check_evaluable,
    create_statement,
    probe_query,
)
from shardmerge.worker.verify.precheck.findings import failed

_ITEM = "schema_of_shard_tables"


def check_expressions(source: str, session: Session, plans: Sequence[TablePlan]) -> Iterator[pb.CheckResult]:
    """Evaluate each expression over no row, equal ones once. Nothing is created."""
    is_mariadb: bool | None = None
    asked: set[object] = set()
    for plan in plans:
        if is_local(plan):
            continue
        if is_mariadb is None:
            is_mariadb = dialect_of(session).is_mariadb
        for rule in plan.filters:
            columns = tuple(plan.read_columns[slot].column for slot in rule.columns)
            texts = [text for text in (rule.insert, rule.update_old, rule.update_new, rule.delete) if text]
            if (columns, *texts) in asked:
                continue
            asked.add((columns, *texts))
            try:
                check_evaluable(plan, columns)
                create_statement("t", columns, is_mariadb=is_mariadb)
                rows(session, probe_query(plan, columns, texts).decode())
            except (pymysql.MySQLError, EvaluationFailed) as error:
                why, errno = (
                    (error.reason, error.errno)
                    if isinstance(error, EvaluationFailed)
                    else (reason_of(error), errno_of(error))
                )
                reason = (
                    f"source {source}: expression filter {rule.rule} of {plan.table.schema}.{plan.table.name} cannot "
                    f"be evaluated at the target: {'; '.join(texts)}: {why} (errno {errno})"
                )
                way_out = "Use only functions that the target's server knows, or other columns."
                yield failed(_ITEM, source, errors.check.RULES(reason=reason, way_out=way_out))
