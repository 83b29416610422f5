"""A subtask's part in the sharding-DDL locks: tells of its shard tables, does what the locks say.

    parked ──▶ told in etcd ──▶ (master) the lock executes: the owner runs the statement at the target
                            ──▶ (master) the lock is released: the parked tables get the structure behind it and go on

Every step is taken from what is recorded, at the target and in etcd, and may be taken again. It runs beside the
streams and holds up none of them.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from proto import hooks, state_pb2
from proto.errors import ShardmergeError
from proto.log import get_logger
from worker import meta
from worker.connection import Session, Side
from worker.context import SubTaskContext
from worker.cutoff import ANSWER_SECONDS, session_until
from worker.ddl import parked as parked_tables
from worker.ddl import records, run_locks
from worker.ddl.behind import behind_parked
from worker.ddl.digests import Digests, digest_of
from worker.ddl.duty import Execute, Member, Release, Waits, duty_of, shard_record, waits_of
from worker.ddl.execute import run_once, subject_of
from worker.ddl.parked import Parked
from worker.ddl.run_locks import LockRun
from worker.ddl.seen import Seen, read_seen
from worker.ddl.session import PLAIN
from worker.ddl.tracker import Tracked, Tracker, open_tracker
from worker.ddl.waiting import WaitingTables
from worker.plan import TargetTable
from worker.shard_desk import Lock, ShardDesk
from worker.unit import StopSignal

log = get_logger()

_LOOK_SECONDS = 0.1
_BACKOFF_SECONDS = 2.0


class ShardAgent:
    """For one run of a subtask. :meth:`run` until stopped, in a thread of its own."""

    def __init__(self, context: SubTaskContext, desk: ShardDesk, waiting: WaitingTables) -> None:
        self._context = context
        self._desk = desk
        self._waiting = waiting
        self._digests = Digests()
        self._behind: dict[Parked, Waits] = {}
        self._told: state_pb2.ShardRecord | None = None
        self._doing = ""
        self._lock = threading.Lock()

    def doing(self) -> str:
        """What it waits for, "" for nothing."""
        with self._lock:
            return self._doing

    @contextmanager
    def beside(self, stop: StopSignal) -> Generator[None]:
        """:meth:`run` in a thread of its own while the block runs."""
        mine = stop.child()
        thread = threading.Thread(target=self.run, args=(mine,), name="shard-agent", daemon=True)
        thread.start()
        try:
            yield
        finally:
            mine.set()
            thread.join()

    def run(self, stop: StopSignal) -> None:
        """What goes wrong is told, and tried again: the tables concerned wait as long."""
        local, state = -1, -1
        again = False
        while not stop.is_set:
            number = self._waiting.number()
            state_now, locks = self._desk.locks(self._context.config.task, state, 0.0 if again else _LOOK_SECONDS)
            if (number, state_now) == (local, state) and not again:
                continue
            try:
                again = self._look(locks, stop)
                local, state = number, state_now
                self._tell(self._waits(locks))
            except ShardmergeError as error:
                if stop.is_set:
                    return
                log.warning(
                    "a sharding statement waits",
                    task=self._context.config.task,
                    source=self._context.source.source_id,
                    error=str(error),
                )
                self._tell(str(error))
                again = True
                stop.wait(_BACKOFF_SECONDS)

    def _waits(self, locks: tuple[Lock, ...]) -> str:
        waiting = self._waiting.waits()
        if not waiting:
            return ""
        names = ", ".join(f"`{lock.target_schema}`.`{lock.target_table}`" for lock in locks)
        why = next((f": {item.why}" for item in waiting.values() if item.why), "")
        return (
            f"{len(waiting)} shard table(s) wait before a sharding DDL of {names or 'a table without a lock yet'}{why}"
        )

    def _tell(self, doing: str) -> None:
        with self._lock:
            self._doing = doing

    # --- one look

    def _look(self, locks: tuple[Lock, ...], stop: StopSignal) -> bool:
        """Act once; True when there may be more to do at once."""
        endpoint = self._context.target_endpoint
        with session_until(stop, endpoint, Side.TARGET, name="target", read_timeout=ANSWER_SECONDS) as session:
            seen = read_seen(session, self._context.who, self._context.rules)
            tracker = open_tracker(session, self._context.who, "locks", self._context.epoch)
            waits = {number: self._wait(seen, number, item, tracker) for number, item in seen.parked.items()}
            members = [
                Member(plan, self._digests.digest(plan.table, seen.creations[number], tracker), waits.get(number))
                for number, plan in sorted(seen.plans.items())
            ]
            self._publish(seen, members)
            for lock in locks:
                mine = [member for member in members if member.plan.target == _target_of(lock)]
                match duty_of(lock, self._context.source.source_id, seen.runs.get(_target_of(lock)), mine):
                    case Execute(runs=runs):
                        self._execute(session, lock, mine, stop, runs=runs)
                        return True
                    case Release(freed=freed):
                        self._release(session, lock, freed)
                        return True
                    case None:
                        pass
        return False

    def _wait(self, seen: Seen, number: int, item: Parked, tracker: Tracker) -> Waits:
        """Of a table that waits, and of one that was released and has no stream yet."""
        known = self._behind.get(item) or self._behind.get(replace(item, released=False))
        if known is not None:
            return replace(known, parked=item)
        plan, creation = seen.plans[number], seen.creations[number]
        if item.released:  # the record has the structure behind it already
            tracked = Tracked(plan.table, creation)
            after = self._digests.digest(plan.table, creation, tracker)
        else:
            tracked = behind_parked(tracker, plan, creation, item, self._context.config.task)
            after = digest_of(tracked.creation)
        found = waits_of(item, plan, tracked, after)
        self._behind[item] = found
        return found

    def _publish(self, seen: Seen, members: Sequence[Member]) -> None:
        """Tell etcd, if it is other than told before."""
        record = shard_record(self._context.epoch, members, seen.runs)
        if record != self._told:
            _, task, source = self._context.who
            self._desk.publish(task, source, record)
            self._told = record

    # --- steps

    def _execute(self, session: Session, lock: Lock, mine: Sequence[Member], stop: StopSignal, *, runs: bool) -> None:
        """Run the lock's statement at the target if it ``runs``; record that it has run."""
        context, target = self._context, _target_of(lock)
        # Whoever came first may have left meanwhile: the statement is the lock's, only its session is unknown then.
        same = next((item for member in mine if (item := member.waits) is not None and item.form == lock.form), None)
        text, given = (lock.statement, PLAIN) if same is None else (same.text, same.parked.given)
        hooks.reach("lock.executing")
        if runs:
            with session_until(stop, context.target_endpoint, Side.TARGET, name="target", read_timeout=None) as own:
                run_once(
                    own,
                    context.who,
                    context.epoch,
                    [target],
                    text,
                    given,
                    stop,
                    self._tell,
                    position=same.parked.place if same is not None else "(a lock's)",
                )
        if stop.is_set:
            return
        hooks.reach("lock.executed")
        run = LockRun(lock.generation, lock.after)

        def also(inner: Session) -> None:
            run_locks.write(inner, *context.who[:2], target, run)
            records.forget_begun(inner, *context.who, subject_of([target]))

        meta.pass_statement(session, *context.who, context.epoch, {}, {}, also)
        hooks.reach("lock.told")

    def _release(self, session: Session, lock: Lock, freed: Sequence[Waits]) -> None:
        """The statement lies behind these tables: record their structures behind it."""
        context = self._context
        released = {item.parked.number: replace(item.parked, released=True) for item in freed}
        tables = {item.parked.number: item.tracked.table for item in freed}

        def also(inner: Session) -> None:
            parked_tables.write(inner, *context.who, released)
            records.write_creations(inner, *context.who, {item.parked.number: item.tracked.creation for item in freed})

        hooks.reach("lock.before_release")
        meta.pass_statement(session, *context.who, context.epoch, {}, tables, also)
        hooks.reach("lock.released")
        self._waiting.release(released.values())
        log.info(
            "shard tables go on behind a sharding statement",
            task=context.config.task,
            source=context.source.source_id,
            tables=[table.full_name for table in tables.values()],
            statement=lock.statement,
        )


def _target_of(lock: Lock) -> TargetTable:
    return TargetTable(lock.target_schema, lock.target_table)
