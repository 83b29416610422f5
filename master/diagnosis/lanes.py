"""What the lanes of a source spend their time on, and whether one of them has all the work. Pure.

The weight of a cause is its share of the lanes' time. While the task keeps up, the causes count less than the finding
that it does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from shardmerge.master.diagnosis.finding import BUSY, Finding, percent, seconds, some
from shardmerge.master.diagnosis.stopped import workaround
from shardmerge.master.diagnosis.view import LANE_CAUSES, LaneView, SourceView
from shardmerge.proto import diagnose_pb2 as pb

_KEEPS_UP_SECONDS = 1.0
"""A task with less lag keeps up, whatever its lanes do."""

_OF_KEPT_UP = 0.4
_KEEPS_UP_WEIGHT = 30.0
_MOST_SHARE = 0.5
"""From this share of the time on a cause is one."""

_BUSY = ("decode", "target", "gather", "retry")
_OF_TARGET = ("target", "gather")
"""A lane gathers rows for as long as its last commit took: a faster target shortens both."""

_BUSY_LANE = 0.5
_ALONE = 0.5
"""A lane has the work alone if no other one works for more than this part of its time."""

_MOST_CHANGES = 0.7
_REPEATED = 4.0
_RECENT_KEY_SECONDS = 10.0
_SLOW_ROUND_TRIP = 0.02

_COMMITTING = "committing"
_LONG_COMMIT_SECONDS = 2.0
_MOST_ROUND_TRIPS = 100
"""A transaction needs some round trips; one that takes longer than this many of them waits for something else."""

_LONG_COMMIT_WEIGHT = 75.0
"""Between a lock that is known and a cause that takes all of the lanes' time."""


def keeps_up(view: SourceView) -> bool:
    """Whether it is known to lag less than a second."""
    return view.lag is not None and view.lag < _KEEPS_UP_SECONDS


def lanes(view: SourceView, locked: Collection[int] = (), *, is_parked: bool = False) -> Iterator[Finding]:
    """The findings about the lanes of a source that replicates. ``locked``: lanes that wait for a lock of the target:
    what they spend their time on is explained by it. ``is_parked``: rows of some of its tables wait at a DDL lock, and
    their lag is not in the view's."""
    if not view.is_replicating or not view.lanes:
        return
    factor = _OF_KEPT_UP if keeps_up(view) else 1.0
    yield from _state(view, is_parked=is_parked)
    if locked:
        return
    stuck = _stuck(view)
    if stuck:
        yield _long_commit(view, stuck)
        if not view.changes:
            return  # nothing else is known about the lanes
    alone = _alone(view)
    if alone is not None:
        yield _hot(view, alone, factor)
    found = list(_causes(view, factor, has_alone=alone is not None))
    yield from found
    if alone is None and not found and view.lag is not None and not keeps_up(view):
        yield from _mixed(view)


def _state(view: SourceView, *, is_parked: bool) -> Iterator[Finding]:
    who = "Apart from the shard tables that wait at a sharding DDL, it keeps up" if is_parked else "It keeps up"
    if keeps_up(view) and view.changes and view.lag is not None:
        yield Finding(
            "keeps-up",
            _KEEPS_UP_WEIGHT,
            f"{who}: its lag is {seconds(view.lag)}, at {view.changes_per_second:.0f} changes/s.",
            figures={"lag_seconds": view.lag, "changes_per_second": view.changes_per_second},
        )


# --- a transaction that does not end


def _stuck(view: SourceView) -> list[LaneView]:
    """The lanes whose transaction has not ended for much longer than its round trips take, the longest first."""
    round_trip = view.round_trip
    if round_trip is None:
        return []
    least = max(_LONG_COMMIT_SECONDS, view.use.seconds, _MOST_ROUND_TRIPS * round_trip)
    found = [
        lane
        for lane in view.lanes
        if lane.status.phase == _COMMITTING and lane.status.phase_seconds >= least and not lane.use.transactions
    ]
    return sorted(found, key=lambda lane: (-lane.status.phase_seconds, lane.number))


def _long_commit(view: SourceView, stuck: list[LaneView]) -> Finding:
    first, hidden = stuck[0], view.use.target.hidden
    waited, round_trip = first.status.phase_seconds, view.round_trip or 0.0
    others = f" So have lane(s) {some(str(lane.number) for lane in stuck[1:])}." if len(stuck) > 1 else ""
    if hidden:
        why = f"Whether it waits for a lock there is not known; not visible: {hidden}."
        statements = " ".join(f"`{statement}`" for statement in view.use.target.grants)
        ways = (
            f"Give the task's account what it lacks{f' ({statements})' if statements else ''}, and ask again: then the "
            "session that holds a lock is shown.",
        )
    else:
        why = (
            "No lock that it waits for was found: its statements may take long, there may be many of them, or the "
            "target waits for disk space, without an error."
        )
        ways = ()
    reported = f" Lane {first.number} waits for {first.status.waits_for.rstrip('.')}." if first.status.waits_for else ""
    return Finding(
        "long-commit",
        _LONG_COMMIT_WEIGHT,
        f"Lane {first.number} has committed one transaction for {seconds(waited)}, and it has not ended; a round trip "
        f"to the target takes {_milliseconds(round_trip)}.{others}{reported} {why}",
        (
            *ways,
            "`SHOW FULL PROCESSLIST` at the target shows the lane's statement and its state, and what else runs there; "
            "`SHOW ENGINE INNODB STATUS` shows locks. If the disk is full, MariaDB shows the state `Waiting for "
            "someone to free space`, and MySQL writes it to its error log: free space there; the lane then "
            "continues.",
        ),
        figures={"commit_seconds": waited, "round_trip_ms": round_trip * 1000, "lanes": float(len(stuck))},
        names={
            "lane": str(first.number),
            **({"connection": str(first.use.connection)} if first.use.connection else {}),
        },
    )


# --- causes by their share


def _causes(view: SourceView, factor: float, *, has_alone: bool) -> Iterator[Finding]:
    """``has_alone``: one lane has all the work, so more of them would not help."""
    share = view.share(*_OF_TARGET)
    if share >= _MOST_SHARE:
        yield _target(view, share, factor, more_lanes=not has_alone)
    for causes, finding in (
        (("decode",), _decode),
        (("read",), _read),
        (("retry",), _retry),
        (("barrier",), _barrier),
        (("start",), _start),
    ):
        share = view.share(*causes)
        if share >= _MOST_SHARE:
            yield finding(view, share, factor)


def _target(view: SourceView, share: float, factor: float, *, more_lanes: bool) -> Finding:
    commit, round_trip = view.commit_seconds, view.round_trip
    figures = {"share": share, "gather_share": view.share("gather")}
    longest = max(view.lanes, key=lambda lane: lane.status.phase_seconds)
    if commit is None:
        what = (
            f"no commit has ended in {seconds(view.use.seconds)}; "
            f"lane {longest.number} has been committing for {seconds(longest.status.phase_seconds)}"
        )
    else:
        what = f"a commit takes {_milliseconds(commit)} on average"
        figures["commit_ms"] = commit * 1000
    if round_trip is None:
        way = "; how long a round trip to it takes is not known"
    else:
        way = f"; a round trip to it takes {_milliseconds(round_trip)}"
        figures["round_trip_ms"] = round_trip * 1000
    actions: list[str] = []
    if round_trip is not None and round_trip >= _SLOW_ROUND_TRIP:
        actions.append(
            "Most of it is the network: measure it between worker and target, and the proxy if there is one."
        )
    else:
        actions.append(
            "Look at the target: its disk (`innodb_flush_log_at_trx_commit`, `sync_binlog`), its memory, and what else "
            "runs there (`SHOW FULL PROCESSLIST`). Each index of the target tables costs time for each row."
        )
    if more_lanes and _all_busy(view):
        actions.append(_more_lanes(view))
    gathers = figures["gather_share"]
    part = f" ({percent(gathers)}: the lanes collect rows for as long as their last commit took)"
    return Finding(
        "target-slow",
        BUSY * share * factor,
        f"The target uses {percent(share)} of the lanes' time{part if gathers >= 0.05 else ''}: {what}{way}.",
        tuple(actions),
        figures=figures,
    )


def _decode(view: SourceView, share: float, factor: float) -> Finding:
    return Finding(
        "decode-slow",
        BUSY * share * factor,
        f"Decoding rows and applying the rules uses {percent(share)} of the lanes' time: the processors of the worker "
        "(or of its executors) limit the task.",
        ("Give the worker more processors, or move other work away from its machine.", _more_lanes(view)),
        figures={"share": share},
    )


def _read(view: SourceView, share: float, factor: float) -> Finding:
    return Finding(
        "relay-log-slow",
        BUSY * share * factor,
        f"The lanes wait for the relay log {percent(share)} of their time, although it has what they need.",
        (
            "Look at the disk of the worker that holds `relay-dir`, and, with lanes on other machines, at the network "
            "between them and the worker.",
        ),
        figures={"share": share},
    )


def _retry(view: SourceView, share: float, factor: float) -> Finding:
    lane = max(view.lanes, key=lambda each: each.seconds("retry"))
    error = lane.status.error
    why = f": [{error.code} {error.name}] {error.message}" if error.code else ""
    return Finding(
        "target-refuses",
        max(BUSY * share * factor, BUSY * share),
        f"Lane {lane.number} repeats a transaction that the target refuses for a temporary reason{why}".rstrip(". ")
        + ".",
        workaround(view, error),
        figures={"share": share, "code": error.code, "attempt": lane.status.attempt},
        names={"lane": str(lane.number), "error": error.name},
    )


def _barrier(view: SourceView, share: float, factor: float) -> Finding:
    status = view.status
    what = status.waiting_for if status is not None else ""
    return Finding(
        "barrier",
        BUSY * share,
        f"The lanes wait at a statement {percent(share)} of their time"
        + (f": {what}." if what else ", until all of them have reached it and it has run."),
        (
            "A statement at the target may take as long as it would there by hand: `SHOW FULL PROCESSLIST` at the "
            "target shows it.",
            f"`dmctl query-status {view.task_word} --more`",
        ),
        figures={"share": share},
    )


def _start(view: SourceView, share: float, factor: float) -> Finding:
    spark = view.use.spark
    return Finding(
        "lanes-starting",
        BUSY * share,
        f"The lanes start: they connect to the target and read their checkpoints ({spark.free_slots} of "
        f"{spark.total_slots} Spark slots are free).",
        (f"`dmctl query-status {view.task_word} --more` shows what each lane waits for.",),
        figures={"share": share, "free_slots": spark.free_slots, "total_slots": spark.total_slots},
    )


def _mixed(view: SourceView) -> Iterator[Finding]:
    shares = {cause: view.share(cause) for cause in LANE_CAUSES}
    busy = sorted(((share, cause) for cause, share in shares.items() if share >= 0.05), reverse=True)
    if not busy or shares["idle"] >= _MOST_SHARE:
        return
    parts = ", ".join(f"{cause} {percent(share)}" for share, cause in busy)
    yield Finding(
        "no-single-cause",
        25.0,
        f"No single cause takes most of the lanes' time: {parts}.",
        (_more_lanes(view),)
        if _all_busy(view)
        else (f"Measure for longer: `dmctl why {view.task_word} --seconds 30`",),
        figures={f"{cause}_share": share for cause, share in shares.items() if share},
    )


def _all_busy(view: SourceView) -> bool:
    return all(lane.share(*_BUSY) >= _BUSY_LANE for lane in view.lanes)


def _more_lanes(view: SourceView) -> str:
    return (
        f"More lanes write in parallel ({len(view.lanes)} now): a larger `replicate.lanes` in the task file, then "
        "`dmctl update-task FILE`."
    )


def _milliseconds(value: float) -> str:
    return f"{value * 1000:.1f} ms" if value < 0.1 else seconds(value)


# --- one lane has the work


@dataclass(frozen=True, slots=True)
class _Alone:
    """The only lane with work. ``share``: of its own time; ``of_changes``: of the changes of all lanes, None: no commit
    has ended."""

    lane: LaneView
    share: float
    of_changes: float | None


def _work(lane: LaneView) -> float:
    """The share of its time that a lane works. One that commits without changes only moves its checkpoint."""
    return 0.0 if lane.use.transactions and not lane.use.changes else lane.share(*_BUSY)


def _alone(view: SourceView) -> _Alone | None:
    """The lane that has the work although there are others; None: there is no such lane."""
    found = view.lanes
    if len(found) < 2:
        return None
    shares = sorted(((_work(lane), lane) for lane in found), key=lambda each: -each[0])
    (top, lane), others = shares[0], shares[1:]
    if top < _BUSY_LANE or others[0][0] > _ALONE * top:
        return None
    changes = sum(each.use.changes for each in found)
    of_changes = lane.use.changes / changes if changes else None
    if of_changes is not None and of_changes < _MOST_CHANGES:
        return None
    return _Alone(lane, top, of_changes)


def _hot(view: SourceView, alone: _Alone, factor: float) -> Finding:
    lane, use = alone.lane, alone.lane.use
    others = len(view.lanes) - 1
    rest = f"the other {others} lanes have" if others > 1 else "the other lane has"
    head = f"Lane {lane.number} works {percent(alone.share)} of the time, while {rest} little or nothing to apply."
    figures = {"busy_share": alone.share, "lanes": float(len(view.lanes))}
    names = {"lane": str(lane.number)}
    weight = BUSY * alone.share * factor + 1.0
    table = use.tables[0] if use.tables else None
    if alone.of_changes is not None:
        figures["share_of_changes"] = alone.of_changes
    key = _key(use)
    repeated = use.changes / use.written_rows if use.written_rows else 0.0
    if table is None:
        text = f"{head} It has not ended a commit in {seconds(view.use.seconds)}, so the table is not known."
        ways = (f"Measure for longer: `dmctl why {view.task_word} -s {view.source_word} --seconds 30`",)
        return Finding("lane-skew", weight, text, ways, figures=figures, names=names)
    names["table"] = table.table
    if repeated >= _REPEATED:
        figures["changes_per_row"] = repeated
        which = f"key {key.key} of {table.table}" if key is not None else f"few keys of {table.table}"
        if key is not None:
            names["key"] = key.key
        text = (
            f"{head} {repeated:.0f} changes are one written row: they are changes of {which}. Changes of one key are "
            "applied in order, by one lane."
        )
        ways = (
            "More lanes do not help. A faster target does, and fewer updates of that row at the source (for example "
            "a counter that is written once a second).",
        )
        return Finding("hot-key", weight, text, ways, figures=figures, names=names)
    of_table = table.changes / use.changes if use.changes else 0.0
    figures["share_of_table"] = of_table
    part = f"{percent(alone.of_changes)} of all changes are its own" if alone.of_changes is not None else ""
    text = f"{head} {part}, {percent(of_table)} of them of {table.table}."
    if table.one_lane:
        text += f" All rows of this table have one lane, because {table.one_lane}."
        return Finding("lane-skew", weight, text, (_one_lane_way(view),), figures=figures, names=names)
    text += " The keys that change now happen to belong to this lane."
    return Finding("lane-skew", weight, text, (_more_lanes(view),), figures=figures, names=names)


def _key(use: pb.LaneUse) -> pb.HotKey | None:
    return use.hot_key if use.HasField("hot_key") and use.hot_key.age_seconds <= _RECENT_KEY_SECONDS else None


def _one_lane_way(view: SourceView) -> str:
    return (
        "More lanes do not help this table: make the target faster, or look at its structure "
        f"(`dmctl schema {view.task_word}`): a table with one primary key, and no further unique key, uses all lanes."
    )
