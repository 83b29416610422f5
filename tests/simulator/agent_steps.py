"""Simulates the steps of one source's lock agent (worker/ddl/locks/lock_agent.py), and what it meets.

A pass reads the records, publishes, and carries out what a lock requires or an operator orders; each is a step.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass, replace

from shardmerge.master.ddl_lock.situation import Lock
from shardmerge.worker.core.stored_override import StoredOverride
from shardmerge.worker.ddl.execute import run_once
from shardmerge.worker.ddl.execute.run_once import Begun, NextStep
from shardmerge.worker.ddl.locks.lock_protocol import Member
from shardmerge.worker.ddl.locks.parked_override import overridden, replaces_lock_run
from shardmerge.worker.target.records.executed_locks import LockRun
from shardmerge.worker.target.records.parked_tables import Parked
from tests.simulator.source_log import DdlEvent, Structure, run_at
from tests.simulator.worker_reports import (
    accepts,
    digest,
    duty_of,
    members_of,
    parked_at,
    ran_at,
    record_of,
    report_of_members,
)
from tests.simulator.worker_state import (
    Commits,
    Durable,
    Executes,
    Frees,
    Half,
    Look,
    Releases,
    Shared,
    Source,
    queue_of,
)

Step = tuple[str, Source, Shared]


@dataclass(frozen=True, slots=True)
class Ways:
    """Deviations from the program, to check that errors are detected.

    ``torn_look``: the lock agent reads the records at two moments. ``torn_passing``: a statement is recorded as
    executed before its table is recorded as parked. ``early_release``: a worker releases tables while their lock is
    executing. ``forgets_begun``: the record that a statement has begun is removed before its result is recorded.
    ``parks_early``: the lock agent regards a table as parked although the lanes still apply its rows. ``leaves_rows``:
    a table is parked again although it has rows before its next statement.
    """

    torn_look: bool = False
    torn_passing: bool = False
    early_release: bool = False
    forgets_begun: bool = False
    parks_early: bool = False
    leaves_rows: bool = False


class Surroundings:
    """What a worker meets that the states do not have. This one is for walks through all states: each number of
    statements is parked ahead, and equal levels look equal."""

    def lock(self, shared: Shared) -> Lock | None:
        """Return the lock as the worker has read it last."""
        return shared.lock

    def ops(self) -> tuple[StoredOverride, ...]:
        """Return the operator's overrides for the source's statements."""
        return ()

    def ahead(self) -> int | None:
        """Return how many statements are parked ahead; None: each number is a step of its own."""
        return None

    def parked(self, event: DdlEvent, number: int, _shared: Shared) -> Parked:
        """Return the record of a table that is parked at ``event``."""
        return parked_at(event, number)


class AgentSteps:
    """The steps of the lock agent of source ``name``. ``around``, ``ways``: see there."""

    def __init__(self, name: str, around: Surroundings, ways: Ways) -> None:
        self.name, self.around, self.ways = name, around, ways
        self._idle: tuple[object, ...] = (self,) * 10
        """What a pass has read that had to do nothing."""

    def steps(self, source: Source, shared: Shared) -> Iterator[Step]:
        durable, process = source.durable, source.process
        match process.look:
            case None:
                committed = min(durable.main) if process.knows_lanes else None
                departing = queue_of(process.waiting).departing() if process.waiting else frozenset[int]()
                calls = (*process.waiting, Commits(committed)) if departing else ()
                if departing and queue_of(calls).departing() != departing:
                    source = source._replace(process=process._replace(waiting=calls))
                elif departing and committed is None:
                    return
                half = Half(durable.dealing, durable.joining)
                if self.ways.torn_look:
                    yield "reads its row", source._replace(process=source.process._replace(look=half)), shared
                else:
                    yield from self._looked(source, half, shared)
            case Half() as half:
                yield from self._looked(source._replace(process=process._replace(look=None)), half, shared)
            case Look(report=report) if report != source.reported:
                yield "publishes", _reported(source._replace(reported=report)), shared
            case Look(duty=Releases(tables=tables)):
                yield f"releases {tables}", self._freed(source, tables), shared
            case Look(duty=Executes() as duty, lock=lock):
                assert lock is not None
                yield from self._executes(source, duty, lock, shared)
            case Look():
                raise AssertionError("a look without any effect")

    def _looked(self, source: Source, half: Half, shared: Shared) -> Iterator[Step]:
        durable, lock, ops = source.durable, self.around.lock(shared), self.around.ops()
        departing = queue_of(source.process.waiting).departing() if source.process.waiting else frozenset[int]()
        read = (durable.tables, durable.parked, half.dealing, half.joining, departing, lock, ops)
        read += (shared.run, shared.columns, source.reported)
        if all(map(operator.is_, read, self._idle)):
            return
        if self.ways.parks_early:
            departing = frozenset[int]()
        members = members_of(self.name, durable.tables, durable.parked, half, departing)
        report = report_of_members(self.name, members, shared.run)
        found = self._duty(durable, members, lock, shared)
        if report != source.reported or found is not None:
            look = Look(report, found, lock if found is not None else None)
            yield "looks", source._replace(process=source.process._replace(look=look)), shared
        else:
            self._idle = read

    def _duty(
        self, durable: Durable, members: tuple[Member, ...], lock: Lock | None, shared: Shared
    ) -> Executes | Releases | None:
        """Return what the worker must do for a lock, or has to do because an operator overrides statements."""
        found = duty_of(self.name, lock, members, shared.run, early=self.ways.early_release)
        ops = self.around.ops()
        if not ops:
            return found
        waits = {each.plan.shard: each.waits for each in members if each.waits is not None}
        overrides = overridden(ops, {number: item.parked for number, item in waits.items()})
        locks = () if lock is None else (record_of(lock),)
        plans = {each.plan.shard: each.plan for each in members}
        freed = tuple(
            number
            for number, one in overrides.items()
            if not replaces_lock_run(one, plans[number], locks, self.name, shared.run)
            and set(run_at(durable.tables[number].columns, one.parked.text)) <= set(shared.columns[-1])
        )
        if freed:
            return Releases(freed)
        if isinstance(found, Executes) and lock is not None:
            here = [number for number, item in waits.items() if item.form == lock.form]
            if any(number in overrides for number in here):
                after = [run_at(durable.tables[at].columns, waits[at].parked.text) for at in here]
                fits = all(set(columns) <= set(shared.columns[-1]) for columns in after)
                return found._replace(replaced=True) if fits else None
        return found

    def _freed(self, source: Source, tables: tuple[int, ...]) -> Source:
        durable, process = source.durable, source.process
        structures = list(durable.tables)
        freed = [item for item in durable.parked if item.number in tables]
        for item in freed:
            name, columns = structures[item.number]
            structures[item.number] = Structure(name, run_at(columns, item.text))
        released = tuple(replace(item, released=True) for item in freed)
        others = (item for item in durable.parked if item.number not in tables)
        after = durable._replace(tables=tuple(structures), parked=by_number((*others, *released)))
        waiting = (*process.waiting, Frees(released))
        return source._replace(durable=after, process=process._replace(waiting=waiting, look=None))

    def _executes(self, source: Source, duty: Executes, lock: Lock, shared: Shared) -> Iterator[Step]:
        if duty.runs and not (duty.has_run or duty.replaced):
            if shared.holder in ("", self.name) and (step := self._runs(source, duty, lock, shared)) is not None:
                yield step
            return
        rest = tuple(each for each in shared.begun if each[1] != lock.generation)
        if self.ways.forgets_begun and rest != shared.begun:
            yield "forgets", source, shared._replace(begun=rest)
        after = source._replace(process=source.process._replace(look=None))
        yield "records the run", after, shared._replace(run=LockRun(lock.generation, lock.after), begun=rest)

    def _runs(self, source: Source, duty: Executes, lock: Lock, shared: Shared) -> Step | None:
        """Do as run_once of worker/ddl/execute/run_once.py, under the server's lock of the statement. None: the target
        refuses the statement, because of an operator's decision."""
        assert isinstance(source.process.look, Look)
        now = digest(shared.columns[-1])
        begun = {name: one for name, generation, one in shared.begun if generation == lock.generation}
        step = run_once.next_step(begun.get(self.name), lock.statement, now)
        is_recorded = shared.run is not None and shared.run.generation == lock.generation
        step = run_once.next_step_of_run(step, begun.values(), now, is_recorded=is_recorded)
        ran = source._replace(
            process=source.process._replace(look=source.process.look._replace(duty=duty._replace(has_run=True)))
        )
        match step:
            case NextStep.BEGIN:
                record = (self.name, lock.generation, Begun(lock.statement, now))
                return "begins the statement", source, shared._replace(begun=(*shared.begun, record), holder=self.name)
            case NextStep.HAS_RUN:
                return "finds that the statement has run", ran, shared._replace(holder="")
            case NextStep.RUN if shared.forced and not accepts(shared, lock):
                return None
            case NextStep.RUN:
                return "runs the statement", ran, ran_at(shared._replace(holder=""), lock)


def _reported(source: Source) -> Source:
    """Return the source after it has published: a pass of the lock agent without a duty ends then."""
    look = source.process.look
    if isinstance(look, Look) and look.duty is None:
        return source._replace(process=source.process._replace(look=None))
    return source


def by_number(items: tuple[Parked, ...]) -> tuple[Parked, ...]:
    """Return the records in the order of their tables' numbers."""
    return tuple(sorted(items, key=lambda item: item.number))
