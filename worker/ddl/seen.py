"""What is recorded at the target of a subtask's shard tables, as its part in the locks needs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from worker import meta
from worker.connection import Session
from worker.ddl import parked, records, run_locks
from worker.ddl.creation import Creation
from worker.ddl.parked import Parked
from worker.ddl.run_locks import LockRun
from worker.join.change import stays
from worker.join.record import Joining
from worker.join.standing import taking_part
from worker.moment import one_moment
from worker.plan import TablePlan, TargetTable
from worker.replicate.dealing import Dealing
from worker.rules import Rules


@dataclass(frozen=True, slots=True)
class Seen:
    """``plans``: of all the source's shard tables that take part, by number."""

    plans: Mapping[int, TablePlan]
    creations: Mapping[int, Creation]
    parked: Mapping[int, Parked]
    runs: Mapping[TargetTable, LockRun]


def read_seen(session: Session, who: tuple[str, str, str], rules: Rules) -> Seen:
    """As of one moment; ``session``: in no transaction. ``who``: meta schema, task, source. Raises
    ``pymysql.MySQLError``, the rules' errors."""
    with one_moment(session):
        row = meta.read_row(session, *who)
        tables = meta.read_tables(session, *who)
        found = parked.read(session, *who)
        creations = records.read_creations(session, *who)
        runs = run_locks.read(session, *who[:2])
    dealing = Dealing.from_json(row.dealing) if row is not None else None
    joining = Joining.from_json(row.joining) if row is not None else None
    numbers = taking_part(dealing, joining, found)
    if dealing is not None:
        # Until the lanes are dealt anew after an update, the record has tables that leave by it.
        before = dealing.compiled_rules()
        coming = joining.numbers if joining is not None and not joining.replays else frozenset[int]()
        numbers = {at for at in numbers if at in coming or stays(tables[at], before, rules)}
    plans = {number: rules.plan(number, who[2], tables[number]) for number in sorted(numbers)}
    return Seen(plans, creations, {number: item for number, item in found.items() if number in plans}, runs)
