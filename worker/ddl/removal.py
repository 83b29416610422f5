"""A shard table's rows go: with its target where that has no others, else those that `partition id` tells apart."""

from __future__ import annotations

from proto import errors, hooks
from worker.compare.owned import Between, Everything, Unknown, owned_rows
from worker.connection import execute, quote_name
from worker.ddl.everyone import everyone
from worker.ddl.execute import check_epoch
from worker.ddl.plan import Shard
from worker.ddl.work import Work
from worker.plan import TargetTable

_DELETE_ROWS = 10_000


def drop(work: Work, shard: Shard) -> None:
    """A shard table goes, and its rows with it; its target too when no other shard table stays."""
    _remove(work, shard, f"DROP TABLE IF EXISTS {shard.target.quoted}")
    work.passing.gone.add(shard.number)


def empty(work: Work, shard: Shard) -> None:
    """All rows of a shard table go."""
    _remove(work, shard, f"TRUNCATE TABLE {shard.target.quoted}")


def _remove(work: Work, shard: Shard, of_all: str) -> None:
    """``of_all``: removes all rows of the target."""
    match _owned(work, shard):
        case Everything():
            work.run([shard.target], of_all)
        case Between() as between:
            _delete(work, shard.target, between)
        case Unknown(why=why):
            raise work.refusal(
                errors.ddl.ROWS_NOT_TOLD_APART, table=shard.plan.table.full_name, target=shard.target.quoted, why=why
            )


def _owned(work: Work, shard: Shard) -> Everything | Between | Unknown:
    """Which of the target's rows are the shard table's, whatever task, source or stream the others are in."""
    found = everyone(work.session, *work.who)
    if found.silent:
        return Unknown(f"source {found.silent[0]} has not begun, so its shard tables are not known")
    gone = work.passing.gone
    mine = {number: plan for number, plan in found.mine.items() if number not in gone} | work.plans
    others = (*found.others, *found.foreign)
    staying = [*(plan for number, plan in mine.items() if number not in work.going), *others]
    if shard.number in work.going and all(plan.target != shard.target for plan in staying):
        return Everything()
    return owned_rows(shard.plan, [*mine.values(), *others])


def _delete(work: Work, target: TargetTable, owned: Between) -> None:
    """In parts, each in one transaction with a look at the epoch: what is older deletes no row that came since (I3)."""
    text = (
        f"DELETE FROM {target.quoted} WHERE {owned.condition} ORDER BY {quote_name(owned.column)} LIMIT {_DELETE_ROWS}"
    )
    session = work.session
    deleted = 1
    while deleted and not work.stop.is_set:
        work.tell(f"rows to be deleted: {target.quoted}, {owned.condition}")
        session.begin()
        check_epoch(session, work.who, work.epoch, lock=True)
        deleted = execute(session, text)
        hooks.reach("ddl.deleting")
        session.commit()
    work.tell("")
