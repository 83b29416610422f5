"""All shard tables of a task, of all its sources, by their records at the target."""

from __future__ import annotations

from worker import meta
from worker.connection import Session, quote_name, rows
from worker.plan import TablePlan
from worker.replicate.dealing import Dealing


def other_plans(session: Session, meta_schema: str, task: str, source: str) -> tuple[list[TablePlan], list[str]]:
    """The plans of the task's other sources, and the sources of which nothing is recorded yet.

    Raises ``pymysql.MySQLError``.
    """
    plans: list[TablePlan] = []
    silent: list[str] = []
    found = rows(
        session,
        f"SELECT `source`, `dealing` FROM {quote_name(meta_schema)}.`subtask` WHERE `task` = %s AND `source` <> %s "
        "ORDER BY `source`",
        (task, source),
    )
    for name, recorded in found:
        dealing = Dealing.from_json(str(recorded))
        if dealing is None:
            silent.append(str(name))
        else:
            plans += dealing.plans(str(name), meta.read_tables(session, meta_schema, task, str(name)))
    return plans, silent
