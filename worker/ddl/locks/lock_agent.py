"""A subtask's part in the sharding-DDL locks: publishes its shard tables and follows the locks.

    parked ──▶ published in etcd ──▶ (master) the lock executes: the owner runs the statement at the target
                                 ──▶ (master) the lock is released: parked tables get the structure after it and resume

Every step depends only on the records at the target and in etcd, and may be repeated. The agent runs in parallel with
the streams and never blocks them.
"""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from shardmerge.proto import config_pb2, errors, failpoints, state_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.listed_names import listed
from shardmerge.proto.log import get_logger
from shardmerge.proto.work_share import WorkShare
from shardmerge.worker.core.mysql.cancellable_session import ANSWER_SECONDS, cancellable_session
from shardmerge.worker.core.mysql.connection import Session, Side
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.stop_signal import StopSignal, running_thread
from shardmerge.worker.core.stored_override import StoredOverride
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.ddl.decide.operator_override import Ops
from shardmerge.worker.ddl.execute.optimistic import STRICT, TargetJoin, shard_label
from shardmerge.worker.ddl.execute.run_once import (
    OneRun,
    ended_subject,
    finish_computed,
    join_subject,
    key_of_run,
    run_once,
    subject_lock,
    subject_of,
    wait_for_indexes,
)
from shardmerge.worker.ddl.locks.added_again import dropped_after_release, dropped_by_all
from shardmerge.worker.ddl.locks.ended_conflicts import EndedConflict, EndedConflicts
from shardmerge.worker.ddl.locks.lock_client import Lock, LockClient
from shardmerge.worker.ddl.locks.lock_inputs import LockInputs, LockInputsReader
from shardmerge.worker.ddl.locks.lock_protocol import (
    Execute,
    Member,
    ParkedStatement,
    Release,
    form_of,
    next_lock_step,
    parked_statement,
    to_shard_record,
)
from shardmerge.worker.ddl.locks.lock_run import LockRunner, drop_of, target_of
from shardmerge.worker.ddl.locks.operator_unlock import OperatorUnlocks, misfit, record_nothing
from shardmerge.worker.ddl.locks.parked_override import (
    OverriddenStatement,
    overridden,
    replaces_lock_run,
    run_override,
)
from shardmerge.worker.ddl.locks.parked_queue import ParkedQueue
from shardmerge.worker.ddl.locks.recorded_members import RecordedMembers
from shardmerge.worker.ddl.structure.schema_tracker import SchemaTracker, Tracked, open_tracker
from shardmerge.worker.ddl.structure.structure_after import StructureMemo, parked_structure_after
from shardmerge.worker.ddl.structure.structure_digest import CanonicalCreates, digest_of
from shardmerge.worker.target.records import (
    ddl_progress,
    dropped_columns,
    executed_locks,
    parked_tables,
    subtask_record,
    unlocked_statements,
)
from shardmerge.worker.target.records.divided_statements import begun_sources
from shardmerge.worker.target.records.executed_locks import LockRun
from shardmerge.worker.target.records.history import interrupted_copies
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.unlocked_statements import UnlockedStatement
from shardmerge.worker.unit.run_context import RunContext

log = get_logger()

_Stage = state_pb2.LockRecord

_LOOK_SECONDS = 0.1
_DEPARTURE_LOOK_SECONDS = 0.02
_BACKOFF_SECONDS = 2.0
_RECHECK_SECONDS = 1.0
_NAMED = 5
"""Tables that one message names."""


@dataclass(frozen=True, slots=True)
class Declined:
    """A lock whose statement this source has declined to run. ``form``: of the statement. ``unreached``: the shard
    tables that have not reached it, according to the records at the target."""

    generation: str
    form: str
    unreached: tuple[TablePlan, ...]

    @property
    def reason(self) -> str:
        """Why the tables that are parked at the statement wait, for people."""
        return (
            f"shard table(s) {listed(list(map(shard_label, self.unreached)), _NAMED)} have not reached the statement, "
            "according to the records at the target; the statement runs when they have"
        )


class NextPass(enum.Enum):
    """When the agent has to look again."""

    AT_ONCE = enum.auto()
    SOON = enum.auto()
    """Records of other sources, or the target's structure, decide about a parked table: nothing wakes the agent when
    they change."""
    WHEN_CHANGED = enum.auto()


class LockAgent:
    """For one run of a subtask. :meth:`run` runs in its own thread until stopped."""

    def __init__(
        self,
        context: RunContext,
        desk: LockClient,
        waiting: ParkedQueue,
        ops: Ops,
        committed: Callable[[], RelayOffset | None],
    ) -> None:
        """``waiting``: its changes wake ``desk``. ``ops``: the operator's overrides. ``committed``: up to where all of
        the subtask's own lanes have committed; None: that is not known."""
        self._committed = committed
        self._context = context
        self._lock_client = desk
        self._ops = ops
        self._inputs = LockInputsReader(context.who.source, context.rules, context.members)
        self._parked_queue = waiting
        self._canonical = CanonicalCreates()
        self._memo = StructureMemo()
        self._parked_statements: dict[Parked, ParkedStatement] = {}
        self._published: state_pb2.ShardRecord | None = None
        self._injected: set[OverriddenStatement] = set()
        self._refused: dict[int, ShardmergeError] = {}
        self._ended = EndedConflicts(context, ops, self._canonical, self._memo, self._set_activity)
        self._declined: dict[TargetTable, Declined] = {}
        self._runner = LockRunner(
            context,
            desk,
            RecordedMembers(context.config.task, context.source.source_id, self._canonical, self._memo),
            lambda session: self._inputs.read(session).without_parked(self._parked_queue.departing),
            self._set_activity,
        )
        self._unlocks = OperatorUnlocks(context, self._runner.unreached)
        self._activity = ""
        self._failure: ShardmergeError | None = None
        self._lock = threading.Lock()

    def failure(self) -> ShardmergeError | None:
        """The error that has ended :meth:`run`: an operator must decide."""
        with self._lock:
            return self._failure

    def activity(self) -> str:
        """What the agent waits for, "" for nothing."""
        with self._lock:
            return self._activity

    def running(self, stop: StopSignal) -> AbstractContextManager[None]:
        """Run :meth:`run` in its own thread while the block runs."""
        return running_thread("shard-agent", self.run, stop)

    def run(self, stop: StopSignal) -> None:
        """Run until stopped or until an error that an operator must decide about. After other errors the step is
        repeated: the tables concerned stay parked."""
        local, state = -1, -1
        ops: tuple[StoredOverride, ...] = ()
        again = NextPass.WHEN_CHANGED
        not_before = 0.0
        share = WorkShare(share=0.4, burst=1.5, longest=0.4)
        while not stop.is_set:
            wait = _DEPARTURE_LOOK_SECONDS if self._parked_queue.departing() else _LOOK_SECONDS
            if again is NextPass.AT_ONCE:
                wait = 0.0
            elif self._parked_queue.version() != local:
                wait = min(wait, not_before - time.monotonic())
            state_now, locks = self._lock_client.locks(self._context.config.task, state, wait)
            committed = self._committed()
            self._parked_queue.committed(committed)
            if committed is None and self._parked_queue.departing():
                # A run begins: which tables the lanes have left is unknown until every lane has reported. What is
                # published stays true: a table that was reported as parked is one that all lanes had left.
                stop.wait(_DEPARTURE_LOOK_SECONDS)
                continue
            number = self._parked_queue.version()
            ops_now = self._ops()
            now = time.monotonic()
            is_due = (number != local and now >= not_before) or (
                again is NextPass.SOON and now >= not_before + _RECHECK_SECONDS
            )
            if state_now == state and ops_now == ops and not is_due and again is not NextPass.AT_ONCE:
                continue
            began = time.monotonic()
            try:
                again = self._step(locks, ops_now, stop)
                local, state, ops = number, state_now, ops_now
                ended = time.monotonic()
                # Of a thousand statements in a row, not each is published alone: that costs as much as a statement.
                not_before = ended + share.pause(began, ended)
                self._set_activity(self._waiting_text(locks))
            except ShardmergeError as error:
                if stop.is_set:
                    return
                log.warning(
                    "a sharding DDL cannot proceed yet",
                    task=self._context.config.task,
                    source=self._context.source.source_id,
                    error=str(error),
                )
                self._set_activity(str(error))
                if not error.spec.retryable:
                    with self._lock:
                        self._failure = error
                    return
                again = NextPass.AT_ONCE
                stop.wait(_BACKOFF_SECONDS)

    def _waiting_text(self, locks: tuple[Lock, ...]) -> str:
        waiting = self._parked_queue.parked()
        if not waiting:
            return ""
        names = ", ".join(f"`{lock.target_schema}`.`{lock.target_table}`" for lock in locks)
        targets = names or "a table without a lock yet"
        refused = next((_reason_of(self._refused[number]) for number in waiting if number in self._refused), "")
        why = next((f": {reason}" for reason in (refused, *(item.why for item in waiting.values())) if reason), "")
        return f"{len(waiting)} shard table(s) are parked at a sharding DDL of {targets}{why}"

    def _set_activity(self, doing: str) -> None:
        with self._lock:
            self._activity = doing

    @property
    def _is_optimistic(self) -> bool:
        return self._context.config.shard_mode == config_pb2.SHARD_MODE_OPTIMISTIC

    # --- one step

    def _step(self, locks: tuple[Lock, ...], ops: tuple[StoredOverride, ...], stop: StopSignal) -> NextPass:
        """Take one step."""
        endpoint = self._context.target_endpoint
        with cancellable_session(stop, endpoint, Side.TARGET, name="target", read_timeout=ANSWER_SECONDS) as session:
            # The tables that depart are read after the records: they are announced before they are recorded.
            seen = self._inputs.read(session).without_parked(self._parked_queue.departing)
            tracker = open_tracker(session, self._context.who, "locks", self._context.epoch)
            overrides = overridden(ops, seen.parked)
            self._refused = {number: error for number, error in self._refused.items() if number in overrides}
            self._injected.intersection_update(overrides.values())
            if overrides and self._apply_overrides(session, seen, overrides, locks, tracker, stop):
                return NextPass.AT_ONCE
            waits = {
                number: self._parked_statement(seen, number, item, tracker) for number, item in seen.parked.items()
            }
            # Those of former statements are not kept: in a long run each shard table has hundreds.
            self._parked_statements = {one.parked: one for one in waits.values()}
            if late := self._unlocks.late(session, seen, waits):
                self._release(session, seen, late, "an operator has let the others go on without these tables")
                return NextPass.AT_ONCE
            asked = [one for one in waits.values() if one.contradicts and not one.parked.released]
            only_waiting = self._only_waiting(session, seen, asked, tracker, stop)
            waits |= self._added_again(session, seen, asked) | only_waiting
            waits |= self._held_back(session, seen, waits, locks)
            members = [
                Member(plan, self._canonical.digest(plan.table, seen.creations[number], tracker), waits.get(number))
                for number, plan in sorted(seen.plans.items())
            ]
            self._publish(seen, members)
            conflicts = {} if overrides else self._conflicts(seen, waits, locks)
            if conflicts and self._end_conflict(session, seen, conflicts, members, tracker, stop):
                return NextPass.AT_ONCE
            for lock in locks:
                mine = [member for member in members if member.plan.target == target_of(lock)]
                match next_lock_step(lock, self._context.source.source_id, seen.runs.get(target_of(lock)), mine):
                    case Execute(runs=runs):
                        if target_of(lock) in self._declined:
                            continue
                        if self._execute(session, seen, lock, mine, overrides, stop, runs=runs):
                            return NextPass.AT_ONCE
                    case Release(freed=freed):
                        numbers = [item.parked.number for item in freed]
                        also = self._unlocks.records_of_release(session, seen, lock, numbers)
                        released = {item.parked: item.tracked for item in freed}
                        self._release(session, seen, released, lock.statement, also=also)
                        return NextPass.AT_ONCE
                    case None:
                        pass
        return NextPass.SOON if asked or conflicts or self._declined or self._refused else NextPass.WHEN_CHANGED

    def _parked_statement(self, seen: LockInputs, number: int, item: Parked, tracker: SchemaTracker) -> ParkedStatement:
        """The statement of a parked table, also of one that was released and has no stream yet."""
        known = self._parked_statements.get(item) or self._parked_statements.get(replace(item, released=False))
        if known is not None:
            return replace(known, parked=item)
        plan, creation = seen.plans[number], seen.creations[number]
        if item.released:  # the record has the structure after it already
            tracked = Tracked(plan.table, creation)
            after = self._canonical.digest(plan.table, creation, tracker)
        else:
            tracked = parked_structure_after(tracker, plan, creation, item, self._context.config.task, self._memo)
            after = digest_of(tracked.creation)
        found = parked_statement(item, plan, tracked, after)
        self._parked_statements[item] = found
        return found

    def _only_waiting(
        self,
        session: Session,
        seen: LockInputs,
        asked: Sequence[ParkedStatement],
        tracker: SchemaTracker,
        stop: StopSignal,
    ) -> dict[int, ParkedStatement]:
        """Of the parked tables that wait for an operator, those that need none any more: the shard tables whose
        structures contradict their statements have changed."""
        if not self._is_optimistic:
            return {}
        by_number = {one.parked.number: one for one in asked}
        forms = {number: one.form for number, one in by_number.items()}
        found = self._ended.only_waiting(session, seen, forms, tracker, stop)
        return {number: replace(by_number[number], contradicts=False) for number in found}

    def _added_again(
        self, session: Session, seen: LockInputs, asked: Sequence[ParkedStatement]
    ) -> dict[int, ParkedStatement]:
        """Of the parked tables that wait for an operator, those that need none any more: they add a column again that
        no shard table has."""
        if not asked:
            return {}
        gone = dropped_columns.read(session, *self._context.who[:2])
        return {
            one.parked.number: replace(one, contradicts=False)
            for one in asked
            if dropped_by_all(one.parked, seen.plans[one.parked.number].target, seen.members, gone)
        }

    def _held_back(
        self, session: Session, seen: LockInputs, waits: Mapping[int, ParkedStatement], locks: Sequence[Lock]
    ) -> dict[int, ParkedStatement]:
        """Of the parked tables, those at statements that this source has declined to run for a lock, because other
        shard tables have not reached them yet."""
        at_work = {target_of(lock): lock for lock in locks}
        still: dict[TargetTable, Declined] = {}
        for target, declined in self._declined.items():
            lock = at_work.get(target)
            if lock is None or lock.generation != declined.generation or lock.stage == _Stage.STAGE_RELEASED:
                continue
            if lock.forced or lock.owner != self._context.source.source_id:
                continue  # an operator has decided; another owner reads the records itself
            if unreached := self._runner.unreached(session, lock, seen):
                still[target] = replace(declined, unreached=unreached)
        self._declined = still
        return {
            number: replace(one, contradicts=True)
            for number, one in waits.items()
            if (declined := still.get(seen.plans[number].target)) is not None and one.form == declined.form
        }

    def _conflicts(
        self, seen: LockInputs, waits: Mapping[int, ParkedStatement], locks: Sequence[Lock]
    ) -> dict[int, str]:
        """The forms of the statements whose conflicts statements of other shard tables may end, by the table's
        number."""
        if not self._is_optimistic:
            return {}
        # A lock that is executing or released releases its tables: otherwise, their records would change in each pass.
        at_work = {(target_of(lock), lock.form) for lock in locks if lock.stage != _Stage.STAGE_GATHERING}
        return {
            number: one.form
            for number, one in waits.items()
            if one.parked.why and not one.parked.released and (seen.plans[number].target, one.form) not in at_work
        }

    def _end_conflict(
        self,
        session: Session,
        seen: LockInputs,
        forms: Mapping[int, str],
        members: Sequence[Member],
        tracker: SchemaTracker,
        stop: StopSignal,
    ) -> bool:
        """Let one parked table continue whose conflict has ended; True when it does. ``forms``: of
        :meth:`_conflicts`."""
        ended = self._ended.find(session, seen, self._parked_queue.waiting(), forms, tracker, stop)
        if ended is None:
            return False
        number, target = ended.parked.number, ended.plan.target
        # Otherwise the master may let a lock of its statement execute at any moment. A lock that is already executing
        # or released remains until the table has continued: the published table is still parked at its statement.
        self._publish(seen, [_held(one) if one.plan.shard == number else one for one in members])
        failpoints.hit("lock.held")
        subject = join_subject(target)
        who, epoch = self._context.who, self._context.epoch
        with subject_lock(session, who, epoch, subject, [target], stop, self._set_activity) as held:
            if not held or self._parked_queue.waiting().get(number, (None,))[0] != ended.parked:
                return False
            wait_for_indexes(session, self._context.who.schema, [target], stop, self._set_activity)
            lock = self._lock_client.current_lock(self._context.config.task, target)
            if lock is not None and lock.stage != _Stage.STAGE_GATHERING and lock.form == forms[number]:
                return False  # the lock releases the table
            finish_computed(session, who, target, STRICT, stop)
            if stop.is_set or (join := self._ended.join_again(ended, tracker)) is None:
                return False
            self._take_join(session, seen, ended, join, stop)
            return not stop.is_set

    def _take_join(
        self, session: Session, seen: LockInputs, ended: EndedConflict, join: TargetJoin, stop: StopSignal
    ) -> None:
        """The target becomes ``join``, and the table is released."""
        context, target = self._context, ended.plan.target
        schema, task, _ = context.who
        subject = ended_subject(target)
        if join.clauses:
            text, position = f"ALTER TABLE {target.quoted} {', '.join(join.clauses)}", ended.context.statement.position
            one = OneRun([target], text, STRICT, subject, position, computed=True)
            run_once(session, context.who, context.epoch, one, stop, self._set_activity)
            if stop.is_set:
                return
        failpoints.hit("lock.joined")

        def also(inner: Session) -> None:
            dropped_columns.write(inner, schema, task, join.dropped)
            if ended.changes_target:
                executed_locks.forget_structure(inner, schema, task, target)
            ddl_progress.delete_begun(inner, context.who, subject)

        reason = "its conflict has ended"
        self._release(session, seen, {replace(ended.parked, skips=ended.skips): ended.tracked}, reason, also=also)

    def _publish(self, seen: LockInputs, members: Sequence[Member]) -> None:
        """Publish in etcd what has changed since the last time."""
        reasons = {number: _reason_of(error) for number, error in self._refused.items()}
        for member in members:
            declined, item = self._declined.get(member.plan.target), member.waits
            if declined is not None and item is not None and item.form == declined.form:
                reasons[member.plan.shard] = declined.reason
        generations = {target: one.generation for target, one in self._declined.items()}
        record = to_shard_record(self._context.epoch, members, seen.runs, reasons, generations)
        if record != self._published:
            _, task, source = self._context.who
            self._lock_client.publish(task, source, record)
            self._published = record

    # --- steps

    def _apply_overrides(
        self,
        session: Session,
        seen: LockInputs,
        overrides: Mapping[int, OverriddenStatement],
        locks: tuple[Lock, ...],
        tracker: SchemaTracker,
        stop: StopSignal,
    ) -> bool:
        """Apply the operator's overrides that do not replace the run of a lock; True when tables were released."""
        context = self._context
        freed: dict[Parked, Tracked] = {}
        for number, one in overrides.items():
            plan = seen.plans[number]
            if one in self._injected:
                continue
            if replaces_lock_run(one, plan, locks, context.source.source_id, seen.runs.get(plan.target)):
                continue
            run_override(context, session, one, stop, self._set_activity)
            if stop.is_set:
                return False
            if one.override.runs_original:
                self._injected.add(one)
                continue
            try:
                tracked = self._parked_statement(seen, number, one.parked, tracker).tracked
            except ShardmergeError as error:
                # The recorded structure may be newer than the statement; then an operator's override is right.
                if error.spec is not errors.ddl.STRUCTURE_REFUSES:
                    raise
                tracked = Tracked(plan.table, seen.creations[number])
            if self._fits(session, seen, plan.target, {number: tracked}):
                freed[one.parked] = tracked
        if not freed:
            return False
        done = [one for one in overrides.values() if one.parked in freed]
        self._release(session, seen, freed, "an operator's override", done)
        return True

    def _fits(self, session: Session, seen: LockInputs, target: TargetTable, after: Mapping[int, Tracked]) -> bool:
        """Whether ``target`` can take the rows that these tables have after statements which an operator has
        overridden. If not, they stay parked until an operator has changed the target by hand."""
        error = misfit(self._context, session, seen, target, after)
        self._refused = {number: known for number, known in self._refused.items() if number not in after}
        if error is not None:
            self._refused |= dict.fromkeys(after, error)
        return error is None

    def _execute(
        self,
        session: Session,
        seen: LockInputs,
        lock: Lock,
        mine: Sequence[Member],
        overrides: Mapping[int, OverriddenStatement],
        stop: StopSignal,
        *,
        runs: bool,
    ) -> bool:
        """Run the lock's statement at the target if it ``runs``, or what an operator has replaced it with; record that
        it has run. False: ``stop`` came first, or the target does not fit after what an operator has decided."""
        context, target = self._context, target_of(lock)
        # The table that reached it first may be gone: the lock has the statement, but its session is unknown then.
        here = [item for member in mine if (item := member.waits) is not None and item.form == lock.form]
        same = here[0] if here else None
        overridden_here = (one for item in here if (one := overrides.get(item.parked.number)) is not None)
        override = next((one for one in overridden_here if not one.override.runs_original), None)
        failpoints.hit("lock.executing")
        if override is not None:
            run_override(context, session, override, stop, self._set_activity)
            after = {item.parked.number: item.tracked for item in here if not item.parked.released}
            fits = not stop.is_set and self._fits(session, seen, target, after)
            if fits:
                self._record_run(session, seen, lock, override)
                return True
            if stop.is_set or override.override.texts:
                return False
            # A skip that was meant for its table alone: the other tables wait for the statement.
        outcome = self._runner.run(lock, same, lambda own: self._record_run(own, seen, lock, None), stop, runs=runs)
        if outcome.unreached:
            log.warning(
                "a sharding DDL does not run: not all shard tables have reached it",
                task=context.config.task,
                source=context.source.source_id,
                statement=lock.statement,
                unreached=[shard_label(plan) for plan in outcome.unreached],
            )
            self._declined[target] = Declined(lock.generation, lock.form, outcome.unreached)
            failpoints.hit("lock.declined")
        return outcome.recorded or bool(outcome.unreached)

    def _record_run(self, session: Session, seen: LockInputs, lock: Lock, override: OverriddenStatement | None) -> None:
        """Record that the lock's statement has run, or the ``override`` that has replaced it."""
        failpoints.hit("lock.executed")
        context, target = self._context, target_of(lock)
        run = LockRun(lock.generation, lock.after)
        schema, task, _ = context.who
        keys = [key_of_run([target], name) for name in (lock.generation, drop_of(lock))]
        begun = [(key, source) for key in keys for source in begun_sources(session, schema, task, key)]
        unlocked = self._unlocks.records(session, seen, lock)

        def also(inner: Session) -> None:
            executed_locks.write(inner, schema, task, target, run)
            unlocked(inner)
            for key, source in begun:
                ddl_progress.delete_begun(inner, SubtaskKey(schema, task, source), key)
            ddl_progress.delete_begun(inner, context.who, subject_of([target]))  # of an earlier version
            if override is not None:
                override.finish(inner, context)

        subtask_record.record_statement(session, context.who, context.epoch, {}, {}, also)
        failpoints.hit("lock.told")

    def _release(
        self,
        session: Session,
        seen: LockInputs,
        freed: Mapping[Parked, Tracked],
        reason: str,
        overrides: Sequence[OverriddenStatement] = (),
        also: Callable[[Session], None] = record_nothing,
    ) -> None:
        """Release these tables: record their structures after the statement. ``overrides``: the operator's statements
        that have replaced it. ``also``: records more in the transaction."""
        context = self._context
        copies = interrupted_copies.read(session, context.who, [item.number for item in freed])
        released = {
            item.number: replace(
                item, released=True, resumes_copy=copies[item.number].number if item.number in copies else 0
            )
            for item in freed
        }
        tables = {item.number: tracked.table for item, tracked in freed.items()}
        schema, task, _ = context.who
        passed = _passed(unlocked_statements.read(session, context.who), freed)
        dropped: Mapping[dropped_columns.Member, frozenset[str]] = {}
        if self._is_optimistic:
            dropped = dropped_after_release(
                session, context.who, [(seen.plans[number], tables[number]) for number in tables]
            )

        def record(inner: Session) -> None:
            parked_tables.write(inner, context.who, released)
            ddl_progress.write_creations(
                inner, context.who, {item.number: tracked.creation for item, tracked in freed.items()}
            )
            dropped_columns.write(inner, schema, task, dropped)
            unlocked_statements.delete(inner, context.who, passed)
            for one in overrides:
                one.finish(inner, context)
            also(inner)

        failpoints.hit("lock.before_release")
        subtask_record.record_statement(session, context.who, context.epoch, {}, tables, record)
        failpoints.hit("lock.released")
        self._parked_queue.release(released.values())
        log.info(
            "shard tables resume after a sharding DDL",
            task=context.config.task,
            source=context.source.source_id,
            tables=[table.full_name for table in tables.values()],
            statement=reason,
        )


def _reason_of(error: ShardmergeError) -> str:
    """Why an operator's override of the statement at which a table is parked has no effect yet."""
    return f"an operator has overridden the statement; the table continues when its target fits: {error}"


def _passed(unlocked: Mapping[int, Sequence[UnlockedStatement]], freed: Mapping[Parked, Tracked]) -> dict[int, str]:
    """The locks of the unlocked statements that these tables have executed when they are released: the generation by
    the table's number."""
    found: dict[int, str] = {}
    for item, tracked in freed.items():
        for each in unlocked.get(item.number, ()):
            if each.is_passed_by(form_of(item), digest_of(tracked.creation)):
                found.setdefault(item.number, each.generation)
    return found


def _held(member: Member) -> Member:
    """``member`` as a table that no lock may let continue by itself."""
    assert member.waits is not None  # noqa: S101 - for the type checker: it is parked
    return replace(member, waits=replace(member.waits, contradicts=True))
