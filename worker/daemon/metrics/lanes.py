"""Samples of the lanes of one subtask, and of the changes of its target tables. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial

from shardmerge.proto.metrics import dm_syncer, own_worker
from shardmerge.proto.metrics.family import Sample
from shardmerge.proto.metrics.tables import Demand, TableName, with_others
from shardmerge.worker.core.batch import ChangeCounts
from shardmerge.worker.daemon.metrics.figures import SubTaskFigures
from shardmerge.worker.replicate.lane_totals import CAUSES, NO_CHANGES, NOTHING, LaneTotal, SubTaskTotals, together

_JOBS = (dm_syncer.ADDED_JOBS, dm_syncer.FINISHED_JOBS)
_NO_TABLES = {TableName("", ""): NO_CHANGES}


def demand_of(figures: SubTaskFigures) -> Demand:
    """The tables and lanes for which there may be series."""
    return Demand(len(figures.totals.tables), len(_numbers(figures)))


def lane_samples(figures: SubTaskFigures, source: str, worker: str, tables: int) -> Iterator[Sample]:
    """``tables``: how many target tables have series of their own."""
    of = {"task": figures.status.name, "source_id": source}
    totals = figures.totals
    sync = figures.status.sync
    yield own_worker.LANES.sample(len(sync.lanes), **of)
    for lane in sync.lanes:
        if not lane.unknown:
            yield own_worker.LANE_BEHIND.sample(lane.bytes_behind, **of, lane=str(lane.lane))
            # With a backlog, 0 means that the commit time of its first transaction is not known yet.
            if lane.oldest_ms or not lane.bytes_behind:
                yield own_worker.LANE_AGE.sample(lane.oldest_ms / 1000, **of, lane=str(lane.lane))
    numbers = _numbers(figures)
    for number in numbers:
        yield from _lane(totals.lanes.get(number, NOTHING), {**of, "lane": str(number)}, worker)
    yield from _together(totals, of, worker)
    yield from _jobs(totals, of, worker, tables, numbers)


def _numbers(figures: SubTaskFigures) -> list[int]:
    return sorted({*figures.totals.lanes, *(lane.lane for lane in figures.status.sync.lanes)}) or [0]


def _lane(total: LaneTotal, of: dict[str, str], worker: str) -> Iterator[Sample]:
    for cause in CAUSES:
        yield own_worker.LANE_SECONDS.sample(total.seconds.get(cause, 0.0), **of, cause=cause)
    kinds = total.kinds
    for kind, count in (("insert", kinds.inserts), ("update", kinds.updates), ("delete", kinds.deletes)):
        yield own_worker.LANE_ROWS.sample(count, **of, kind=kind)
    yield own_worker.LANE_WRITTEN.sample(total.written_rows, **of)
    yield own_worker.LANE_STATEMENTS.sample(total.statements, **of)
    yield own_worker.LANE_TRANSACTIONS.sample(total.transactions, **of)
    dm = {"task": of["task"], "source_id": of["source_id"], "worker": worker, "queueNo": of["lane"]}
    yield dm_syncer.TRANSACTION_BATCH.sample(total.changes_in_commit, **dm, type="rows")
    yield dm_syncer.TRANSACTION_BATCH.sample(total.statements_in_commit, **dm, type="statements")


def _together(totals: SubTaskTotals, of: dict[str, str], worker: str) -> Iterator[Sample]:
    total = totals.all
    dm = {**of, "worker": worker}
    yield dm_syncer.TXN_DURATION.sample(total.commit_seconds, **dm)
    yield dm_syncer.FINISHED_TRANSACTIONS.sample(total.transactions, **dm)
    yield dm_syncer.REPLICATION_LAG_HISTOGRAM.sample(total.lag_seconds, **dm)
    yield dm_syncer.CHECKPOINT_INTERVAL.sample(total.seconds_between_commits, **dm)
    yield dm_syncer.IDEAL_QPS.sample(_ideal_qps(total, len(totals.lanes)), **dm)


def _ideal_qps(total: LaneTotal, lanes: int) -> float:
    """Changes per second of lanes that do nothing but wait for the target."""
    seconds = total.seconds.get("target", 0.0)
    kinds = total.kinds
    return lanes * (kinds.inserts + kinds.updates + kinds.deletes) / seconds if seconds else 0.0


def _jobs(totals: SubTaskTotals, of: dict[str, str], worker: str, tables: int, numbers: list[int]) -> Iterator[Sample]:
    yield own_worker.MERGED_TABLES.sample(max(0, len(totals.tables) - tables), **of)
    # In the subtask's order of tables, so that a table keeps its series.
    names = {target: TableName(*target) for target in totals.tables[:tables]}
    are_all_shown = len(names) == len(totals.tables)
    for number in numbers:
        changes = totals.lanes.get(number, NOTHING).changes
        found = {name: changes.in_table(target) for target, name in names.items()}
        if not are_all_shown:
            found = with_others(found, partial(_others, changes.kinds))
        for table, counts in (found or _NO_TABLES).items():
            for kind, count in (("insert", counts.inserts), ("update", counts.updates), ("delete", counts.deletes)):
                for family in _JOBS:
                    yield family.sample(
                        count,
                        **of,
                        worker=worker,
                        queueNo=str(number),
                        type=kind,
                        target_schema=table.schema,
                        target_table=table.table,
                    )


def _others(every: ChangeCounts, shown: Collection[ChangeCounts]) -> ChangeCounts:
    less = together(shown)
    return ChangeCounts(every.inserts - less.inserts, every.updates - less.updates, every.deletes - less.deletes)
