"""A small world of workers, a leader and a target, in which a sharding DDL takes every way it can.

Every interleaving of single steps is tried: a table comes to its next DDL, a worker writes its report, looks at the
lock, runs a statement, lets a table go on, or dies; the leader reads, writes (under the conditions of the real
transaction) or dies in between; the operator unlocks. What a worker knows without having written it down is lost with
it; that a table waits, or has gone on, is written down before it is reported.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

from shardmerge.master.ddl_lock.resolver import (
    Change,
    ChangeOwner,
    Close,
    Nothing,
    Step,
    Wait,
    resolve,
    unlock,
    violations,
)
from shardmerge.master.ddl_lock.situation import (
    Lock,
    LockMember,
    LockStage,
    ReportedStatement,
    Situation,
    SourceReport,
    is_parked_at,
)

FRESH = "999"


@dataclass(frozen=True, slots=True)
class Ddl:
    form: str
    after: str


class Withdrawn(enum.IntEnum):
    NO = 0
    PUBLISHING = 1
    CHECKED = 2
    """The lock was read after the publication, and is not at work on the table's DDL."""


class Table(NamedTuple):
    """``done``: DDLs behind it. ``since``: when it came to the next one; 0: its rows flow. ``there``: it exists.
    ``withdrawn``: the worker wants to let it continue after the DDL that leads back, and publishes that no lock may
    let it continue by itself; only in the worker's memory."""

    done: int = 0
    since: int = 0
    there: bool = True
    withdrawn: Withdrawn = Withdrawn.NO


class Source(NamedTuple):
    """``reported``: the report in etcd, as tables. ``ran``, ``view`` and ``declined`` are in the worker's memory.
    ``paused``: its subtask does nothing until it is resumed, and the leader knows that. ``declined``: the generation
    whose statement it does not run now."""

    tables: tuple[Table, ...]
    reported: tuple[Table, ...] | None = None
    reported_ran: str = ""
    ran: str = ""
    view: Lock | None = None
    in_task: bool = True
    paused: bool = False
    declined: str = ""
    reported_declined: str = ""


class World(NamedTuple):
    """``log``: (form, generation) of every statement that took effect at the target, in order."""

    sources: tuple[Source, ...]
    lock: Lock | None = None
    pending: Change | None = None
    log: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Rules:
    """``histories``: per source, per table, from structure ``S0``. ``strict``: what the tables say is the truth.
    ``back``: a table may continue when its next DDL leads back to the structure before the one it is parked at
    (worker/ddl/locks/ended_conflicts.py). ``skips``: the operator may let a parked table continue without its DDL.
    ``unpublished``: a broken worker does not withdraw the table before. ``declines``: an owner may decline to run a
    statement, and run it later; ``rash``: a broken one does not read the lock again before that."""

    histories: tuple[tuple[tuple[Ddl, ...], ...], ...]
    late: frozenset[tuple[int, int]] = frozenset()
    stale_views: bool = False
    may_leave: bool = False
    back: bool = False
    may_pause: bool = False
    skips: bool = False
    operator: bool = False
    unpublished: bool = False
    declines: bool = False
    rash: bool = False
    conditions: frozenset[str] = frozenset({"lock", "reports"})
    resolve: Callable[[Situation, float, str], Step] = resolve

    @property
    def strict(self) -> bool:
        return not (self.late or self.operator or self.skips)

    @cached_property
    def alike(self) -> tuple[bool, ...]:
        """By source: whether its tables differ in their names only."""
        late = {s for s, _ in self.late}
        return tuple(len(set(tables)) == 1 and s not in late for s, tables in enumerate(self.histories))

    @cached_property
    def all_alike(self) -> bool:
        """Whether the sources differ in their names only."""
        return len(set(self.histories)) == 1 and all(self.alike)

    def first(self) -> World:
        return World(
            tuple(
                Source(tuple(Table(there=(s, t) not in self.late) for t in range(len(tables))))
                for s, tables in enumerate(self.histories)
            )
        )


Reported = tuple[bool, tuple[Table, ...] | None, str, bool, str]
"""Of a source: whether it is in the task, its report, what it says to have run, whether it is paused, what it has
declined."""


class BrokenRuleError(Exception):
    """A step broke an invariant."""


class Moves:
    """The steps that may follow a world, each with its name. Raises BrokenRuleError."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.situation = lru_cache(None)(self._situation)
        self.decision = lru_cache(None)(self._decision)

    def member(self, s: int, t: int, table: Table) -> LockMember:
        history = self.rules.histories[s][t]
        structure = history[table.done - 1].after if table.done else "S0"
        parked = None
        if table.since:
            ddl = history[table.done]
            contradicts = table.withdrawn is not Withdrawn.NO
            parked = ReportedStatement(ddl.form, ddl.form, ddl.after, since=float(table.since), contradicts=contradicts)
        return LockMember(str(s), "d", str(t), structure, parked)

    def _situation(self, reported: tuple[Reported, ...], lock: Lock | None) -> Situation:
        reports: dict[str, SourceReport | None] = {}
        for s, (in_task, tables, ran, _, declined) in enumerate(reported):
            if in_task:
                reports[str(s)] = None
                if tables is not None:
                    members = (self.member(s, t, table) for t, table in enumerate(tables) if table.there)
                    reports[str(s)] = SourceReport(tuple(members), ran, declined)
        unable = frozenset(str(s) for s, (*_, is_paused, _) in enumerate(reported) if is_paused)
        return Situation(reports, lock, unable)

    def read(self, world: World) -> Situation:
        return self.situation(_reported(world), world.lock)

    def _decision(self, reported: tuple[Reported, ...], lock: Lock | None) -> Step:
        return self.rules.resolve(self.situation(reported, lock), 0.0, FRESH)

    def decide(self, world: World) -> Step:
        return self.decision(_reported(world), world.lock)

    def after(self, world: World) -> Iterator[tuple[str, World]]:
        for s in range(len(world.sources)):
            if world.sources[s].in_task:
                yield from self._pauses(world, s)
                if not world.sources[s].paused:
                    yield from self._worker(world, s)
        yield from self._leader(world)
        if self.rules.operator:
            yield from self._operator(world)

    # --- workers

    def _worker(self, world: World, s: int) -> Iterator[tuple[str, World]]:
        source = world.sources[s]
        clock = max((table.since for one in world.sources for table in (*one.tables, *(one.reported or ()))), default=0)
        view = source.view if self.rules.stale_views else world.lock

        def became(changed: Source) -> World:
            return world._replace(sources=(*world.sources[:s], changed, *world.sources[s + 1 :]))

        def became_table(t: int, table: Table) -> World:
            return became(source._replace(tables=(*source.tables[:t], table, *source.tables[t + 1 :])))

        for t, table in enumerate(source.tables):
            if not table.there:
                yield f"{s}.{t} joins", became_table(t, table._replace(there=True))
            elif not table.since and table.done < len(self.rules.histories[s][t]):
                yield f"{s}.{t} comes to a DDL", became_table(t, table._replace(since=clock + 1))
            elif (
                view
                and view.stage is LockStage.RELEASED
                and table.withdrawn is not Withdrawn.CHECKED
                # A worker publishes what it has read before it acts on it.
                and (not self.rules.back or (source.reported is not None and source.reported[t] == table))
                and is_parked_at(self.member(s, t, table), view)
            ):
                self._may_go_on(world, s, t, table)
                yield f"{s}.{t} goes on", became_table(t, Table(table.done + 1))
            if self.rules.skips and table.since and table.withdrawn is Withdrawn.NO:
                yield f"the operator skips {s}.{t}", became_table(t, Table(table.done + 1))
            if self.rules.back and table.since:
                for name, after in self._way_back(world, s, t):
                    yield f"{s}.{t} {name}", became_table(t, after)
        reports = source._replace(reported=source.tables, reported_ran=source.ran, reported_declined=source.declined)
        if reports != source:
            yield f"{s} reports", self._dirty("reports", became(reports))
        if self.rules.stale_views and source.view != world.lock:
            yield f"{s} looks", became(source._replace(view=world.lock))
        if source.ran or source.view or source.declined or source.tables != _recorded(source.tables):
            killed = source._replace(ran="", view=None, declined="", tables=_recorded(source.tables))
            yield f"{s} is killed", became(killed)
        if source.declined:
            yield f"{s} declines no more", became(source._replace(declined=""))
        if view and view.stage is LockStage.EXECUTING and view.owner == str(s) and source.ran != view.generation:
            if self.rules.declines and not view.forced and not source.declined and not self._has_run(world, view):
                yield f"{s} declines {view.form}", became(source._replace(declined=view.generation))
            if self._may_run(world, source, view):
                ran = became(source._replace(ran=view.generation))
                is_there = self.rules.back and view.after == self.target(world)
                yield f"{s} runs {view.form}", ran if is_there else ran._replace(log=self._run(world, view))
        if self.rules.may_leave and sum(one.in_task for one in world.sources) > 1:
            yield f"{s} leaves the task", self._dirty("reports", became(Source((), (), in_task=False)))

    def _pauses(self, world: World, s: int) -> Iterator[tuple[str, World]]:
        """The operator pauses or resumes a subtask: it loses its memory. Only one at a time."""
        if not self.rules.may_pause or any(one.paused for at, one in enumerate(world.sources) if at != s):
            return
        source = world.sources[s]
        tables = _recorded(source.tables)
        after = source._replace(ran="", view=None, declined="", tables=tables, paused=not source.paused)
        verb = "is resumed" if source.paused else "is paused"
        yield f"{s} {verb}", world._replace(sources=(*world.sources[:s], after, *world.sources[s + 1 :]))

    def _way_back(self, world: World, s: int, t: int) -> Iterator[tuple[str, Table]]:
        """The next step of a parked table whose next DDL leads back."""
        source = world.sources[s]
        table, history = source.tables[t], self.rules.histories[s][t]
        before = history[table.done - 1].after if table.done else "S0"
        if table.done + 1 >= len(history) or history[table.done + 1].after != before:
            return
        match table.withdrawn:
            case Withdrawn.NO:
                to = Withdrawn.CHECKED if self.rules.unpublished else Withdrawn.PUBLISHING
                yield "withdraws", table._replace(withdrawn=to)
            case Withdrawn.PUBLISHING if source.reported == source.tables:
                lock = world.lock
                at_work = lock is not None and lock.stage is not LockStage.GATHERING
                is_its = at_work and lock is not None and lock.form == history[table.done].form
                yield "reads the lock", table._replace(withdrawn=Withdrawn.NO if is_its else Withdrawn.CHECKED)
            case Withdrawn.CHECKED:
                yield "goes there and back", Table(table.done + 2)
            case Withdrawn.PUBLISHING:
                pass

    def target(self, world: World) -> str:
        """The structure after the last statement that has run at the target."""
        afters = {ddl.form: ddl.after for tables in self.rules.histories for one in tables for ddl in one}
        return afters[world.log[-1][0]] if world.log else "S0"

    def _fits_all(self, world: World, lock: Lock) -> None:
        """No table's rows flow with another structure than the target gets now."""
        for s, source in enumerate(world.sources):
            for t, table in enumerate(source.tables):
                in_fact = table._replace(withdrawn=Withdrawn.NO)
                member = self.member(s, t, in_fact)
                parked = is_parked_at(member, lock)
                if not parked and member.structure != lock.after:
                    raise BrokenRuleError(f"{lock.form} is run, and {s}.{t} is {table}")
                if parked and table.withdrawn is Withdrawn.CHECKED:
                    raise BrokenRuleError(f"{lock.form} is run, and {s}.{t} is {table}")

    def _may_run(self, world: World, source: Source, view: Lock) -> bool:
        """An owner that may decline publishes that it does not, and reads the lock after that."""
        if not self.rules.declines or self.rules.rash or view.forced:
            return not source.declined
        return not source.declined and not source.reported_declined and view == world.lock

    def _has_run(self, world: World, lock: Lock) -> bool:
        return (lock.form, lock.generation) in world.log

    def _run(self, world: World, lock: Lock) -> tuple[tuple[str, str], ...]:
        """The log after the statement has been run: once more under one generation has no effect."""
        entry = (lock.form, lock.generation)
        if entry in world.log:
            return world.log
        if self.rules.back and not lock.forced and not self.rules.skips:
            self._fits_all(world, lock)
        elif self.rules.strict:
            count = 1 + sum(form == lock.form for form, _ in world.log)
            for s, source in enumerate(world.sources):
                for t, table in enumerate(source.tables):
                    at = [n for n, ddl in enumerate(self.rules.histories[s][t]) if ddl.form == lock.form]
                    come = len(at) >= count and table.done + (table.since > 0) > at[count - 1]
                    if not come:
                        raise BrokenRuleError(f"{lock.form} is run for the {count}. time before {s}.{t} came to it")
        return (*world.log, entry)

    def _may_go_on(self, world: World, s: int, t: int, table: Table) -> None:
        ddl = self.rules.histories[s][t][table.done]
        passed = sum(one.form == ddl.form for one in self.rules.histories[s][t][: table.done + 1])
        if self.rules.strict and not self.rules.back and passed > sum(form == ddl.form for form, _ in world.log):
            raise BrokenRuleError(f"{s}.{t} goes on although {ddl.form} was not run for it")

    # --- the leader

    def _leader(self, world: World) -> Iterator[tuple[str, World]]:
        if world.pending is not None:
            yield "the leader dies", world._replace(pending=None)
            yield f"the leader writes {_named(world.pending)}", self._written(world, world.pending)
            return
        step = self.decide(world)
        if not isinstance(step, Wait | Nothing):
            yield f"the leader reads and decides {_named(step)}", world._replace(pending=step)

    def _operator(self, world: World) -> Iterator[tuple[str, World]]:
        lock = world.lock
        if lock is None or lock.forced or lock.stage is not LockStage.GATHERING:
            return
        for step in (unlock(lock, lock.owner), unlock(lock)):
            if not violations(self.read(world), step):
                yield f"the operator writes {_named(step)}", self._dirty("lock", world._replace(lock=step.lock))

    def _written(self, world: World, step: Change) -> World:
        seen = self.read(world)
        if isinstance(step, ChangeOwner) and world.lock is not None:
            # The owner may be resumed between the decision and the write, and both run the statement: the target
            # accepts one run of a generation.
            seen = replace(seen, unable=seen.unable | {world.lock.owner} if self.rules.may_pause else seen.unable)
        broken = violations(seen, step)
        if broken:
            raise BrokenRuleError("; ".join(broken))
        return world._replace(pending=None, lock=None if isinstance(step, Close) else step.lock)

    def _dirty(self, what: str, world: World) -> World:
        """A record of the leader's conditions was written: what it has decided can no longer be written."""
        return world._replace(pending=None) if what in self.rules.conditions else world


def _reported(world: World) -> tuple[Reported, ...]:
    return tuple(
        (one.in_task, one.reported, one.reported_ran, one.paused, one.reported_declined) for one in world.sources
    )


def _recorded(tables: tuple[Table, ...]) -> tuple[Table, ...]:
    """The tables without what only the worker's memory knows."""
    return tuple(table._replace(withdrawn=Withdrawn.NO) for table in tables)


def _named(step: Change) -> str:
    lock = "" if isinstance(step, Close) else f" {step.lock.form} {step.lock.stage.value} by {step.lock.owner}"
    return type(step).__name__ + lock
