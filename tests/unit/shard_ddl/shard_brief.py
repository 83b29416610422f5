"""Models a source of the sharding DDL model in brief: only what other sources see of it.

The other sources see what a source publishes and what it executes at the target. They do not see its rows, streams and
half-finished steps. So the model walks one source in full and the other one in brief. The source in brief publishes
that its tables have reached their statements, or are past them, in any possible order, whatever its binlog is. What it
has not published yet has no effect on the others. It may publish a state as soon as that state is possible, because a
lock that has released tables stays until they have published that they resumed. The model checks for every step of the
source in full that a source in brief could show the same to the others (:meth:`Brief.explains`). So an error that can
occur with another source in full can also occur with another source in brief.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from shardmerge.master.ddl_lock.situation import Lock, LockMember, LockStage, SourceReport, is_parked_at
from shardmerge.worker.target.records.executed_locks import LockRun
from tests.simulator.source_log import DEALING, FIRST, Columns, DdlEvent, Event, Structure, altered, name_of
from tests.simulator.worker_reports import members_of, parked_at, ran_at, report_of_members
from tests.simulator.worker_state import Half, Shared, Source


class TableReport(NamedTuple):
    """What a source publishes about a table. ``level``: how many statements it is past; ``waits``: it is parked at the
    next one."""

    level: int
    waits: bool


class BriefSource(NamedTuple):
    """State of a source in brief. ``tables``: as published, or the first state."""

    tables: tuple[TableReport, ...]
    reported: SourceReport | None


class Brief:
    """The steps of the source that has the binlog ``log``."""

    def __init__(self, number: int, log: Sequence[Event]) -> None:
        self.name = f"s{number}"
        self._statements = tuple(
            tuple(event for event in log if isinstance(event, DdlEvent) and event.table == table)
            for table in range(1 + max(event.table for event in log))
        )
        self._columns = tuple(map(_columns, self._statements))
        self._member = lru_cache(None)(self._made_member)

    def first(self) -> BriefSource:
        return BriefSource(tuple(TableReport(0, waits=False) for _ in self._statements), None)

    def has_ended(self, source: BriefSource) -> bool:
        ends = zip(source.tables, self._statements, strict=True)
        return all(table == (len(statements), False) for table, statements in ends)

    def steps(self, source: BriefSource, shared: Shared) -> Iterator[tuple[str, BriefSource, Shared]]:
        for after in self._publishes(source, shared):
            yield "publishes", after, shared
        lock = shared.lock
        if lock is None or lock.stage is not LockStage.EXECUTING or lock.owner != self.name:
            return
        if shared.run is not None and shared.run.generation == lock.generation:
            return
        has_run = any(each.generation == lock.generation for each in shared.ran)
        if not has_run and (shared.run is None or shared.run.structure != lock.after):
            yield "runs the statement", source, ran_at(shared, lock)
        else:
            yield "records the run", source, shared._replace(run=LockRun(lock.generation, lock.after))

    def explains(self, before: Source, after: Source, shared: Shared, then: Shared) -> bool:
        """Return whether a source in brief can do what others see of this step of a source in full."""
        # What has begun is seen only where another source takes the lock over: all sources here can run statements.
        shared, then = (each._replace(begun=(), holder="") for each in (shared, then))
        if (before.reported, shared) == (after.reported, then):
            return True
        return any(
            (found.reported, around) == (after.reported, then)
            for tables in self._tables(before.reported)
            for _, found, around in self.steps(BriefSource(tables, before.reported), shared)
        )

    # --- parts

    def _publishes(self, source: BriefSource, shared: Shared) -> Iterator[BriefSource]:
        """Return the states after a publication: it names the last run that was published, or a later one."""
        known = source.reported.executed if source.reported is not None else ""
        recorded = [""]
        if shared.run is not None:
            ran = [each.generation for each in shared.ran]
            last = shared.run.generation
            recorded += [*(ran[: ran.index(last)] if last in ran else ran), last]
        for tables in self._reached(source.tables, shared.lock):
            members = tuple(self._member(number, table) for number, table in enumerate(tables))
            for generation in recorded[recorded.index(known) :]:
                reported = SourceReport(members, generation)
                if reported != source.reported:
                    yield BriefSource(tables, reported)

    def _reached(self, tables: tuple[TableReport, ...], lock: Lock | None) -> list[tuple[TableReport, ...]]:
        """Return the states that the tables may have by now."""
        found = [tables]
        for at in found:
            for number, table in enumerate(at):
                after = self._moved(number, table, lock)
                moved = (*at[:number], after, *at[number + 1 :]) if after is not None else at
                if moved not in found:
                    found.append(moved)
        return found

    def _moved(self, number: int, table: TableReport, lock: Lock | None) -> TableReport | None:
        if not table.waits:
            return table._replace(waits=True) if table.level < len(self._statements[number]) else None
        if lock is None or lock.stage is not LockStage.RELEASED:
            return None
        return TableReport(table.level + 1, waits=False) if is_parked_at(self._member(number, table), lock) else None

    def _made_member(self, number: int, table: TableReport) -> LockMember:
        columns = self._columns[number][table.level]
        every = tuple(
            Structure(name_of(other), FIRST if other != number else columns) for other in range(len(self._statements))
        )
        parked = (parked_at(self._statements[number][table.level], number),) if table.waits else ()
        alone = Half(replace(DEALING[1], shards=frozenset({number})), None)
        [member] = report_of_members(self.name, members_of(self.name, every, parked, alone), None).members
        return member

    def _tables(self, reported: SourceReport | None) -> list[tuple[TableReport, ...]]:
        """Return the states that such a report may describe: several if a table looks the same before and after its
        statements."""
        found: list[tuple[TableReport, ...]] = [()]
        if reported is None:
            return [self.first().tables]
        for number, member in enumerate(reported.members):
            found = [(*tables, table) for tables in found for table in self._alike(number, member)]
        return found

    def _alike(self, number: int, member: LockMember) -> Iterator[TableReport]:
        waits = member.parked is not None
        for level in range(len(self._columns[number]) - waits):
            if self._member(number, TableReport(level, waits)) == member:
                yield TableReport(level, waits)


def _columns(statements: tuple[DdlEvent, ...]) -> tuple[Columns, ...]:
    found: list[Columns] = [FIRST]
    for event in statements:
        found.append(altered(found[-1], event.ddl))
    return tuple(found)
