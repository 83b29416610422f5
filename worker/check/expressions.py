"""Whether the target understands the expressions that it is to evaluate."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pymysql

from proto import errors
from proto import worker_pb2 as pb
from worker.check.findings import failed
from worker.connection import Session, errno_of, rows, server_info
from worker.plan import TablePlan
from worker.rowstage.drops import evaluated_here
from worker.rowstage.server import created, trial
from worker.trouble import reason_of

_ITEM = "schema_of_shard_tables"


def check_expressions(source: str, session: Session, plans: Sequence[TablePlan]) -> Iterator[pb.CheckResult]:
    """Asks without a row; the same question once. Nothing is made."""
    is_mariadb: bool | None = None
    asked: set[object] = set()
    for plan in plans:
        if evaluated_here(plan):
            continue
        if is_mariadb is None:
            is_mariadb = server_info(session).is_mariadb
        for rule in plan.filters:
            columns = tuple(plan.read_columns[slot].column for slot in rule.columns)
            texts = [text for text in (rule.insert, rule.update_old, rule.update_new, rule.delete) if text]
            if (columns, *texts) in asked:
                continue
            asked.add((columns, *texts))
            try:
                created("t", columns, is_mariadb=is_mariadb)
                rows(session, trial(plan, columns, texts).decode())
            except pymysql.MySQLError as error:
                reason = (
                    f"source {source}: expression filter {rule.rule} of {plan.table.schema}.{plan.table.name} cannot "
                    f"be evaluated at the target: {'; '.join(texts)}: {reason_of(error)} (errno {errno_of(error)})"
                )
                way_out = "Write the expression in words that the target's server knows, or narrow it to other columns."
                yield failed(_ITEM, source, errors.check.RULES(reason=reason, way_out=way_out))
