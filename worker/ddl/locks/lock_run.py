"""Runs the statement of a sharding-DDL lock at the target, once, by the lock's owner.

This holds the target's lock of the join (``shard-mode: optimistic``) or of its statements until the run is recorded: no
shard table of the target executes a statement, or is created, meanwhile. Under the first, or if no structure shows what
the statement does to values, the owner compares the lock with the records at the target, and declines to run the
statement where a shard table is not there: see recorded_members.py.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass

from shardmerge.proto import config_pb2, failpoints, state_pb2
from shardmerge.proto.ddl_lock_rule import moves_values
from shardmerge.worker.core.mysql.cancellable_session import cancellable_session
from shardmerge.worker.core.mysql.connection import Session, Side, dialect_of, quote_name
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.subtask_key import SubtaskKey
from shardmerge.worker.core.table_plan import TablePlan, TargetTable
from shardmerge.worker.ddl.execute.added_keys import target_keys, with_extracted_columns
from shardmerge.worker.ddl.execute.ddl_jobs import wait_for_jobs
from shardmerge.worker.ddl.execute.optimistic import STRICT
from shardmerge.worker.ddl.execute.run_once import (
    OneRun,
    digest_of,
    finish_computed,
    join_subject,
    key_of_run,
    run_once,
    subject_lock,
    subject_of,
    wait_for_indexes,
)
from shardmerge.worker.ddl.locks.added_again import dropped_by_all
from shardmerge.worker.ddl.locks.lock_client import Lock, LockClient
from shardmerge.worker.ddl.locks.lock_inputs import LockInputs
from shardmerge.worker.ddl.locks.lock_protocol import ParkedStatement, must_run
from shardmerge.worker.ddl.locks.recorded_members import RecordedMembers
from shardmerge.worker.ddl.structure.schema_tracker import open_tracker
from shardmerge.worker.target.records import ddl_progress, divided_statements, dropped_columns
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.statement_session import UNKNOWN_SESSION
from shardmerge.worker.target.tables.target_table import naming_missing
from shardmerge.worker.unit.run_context import RunContext


@dataclass(frozen=True, slots=True)
class Outcome:
    """``recorded``: the statement has run, and that is recorded. ``unreached``: the shard tables of all sources that
    have not reached it; then it has not run."""

    recorded: bool
    unreached: tuple[TablePlan, ...] = ()


_NOT_YET = Outcome(recorded=False)


@dataclass(frozen=True, slots=True)
class LockRunner:
    """For one run of a subtask, and one thread. ``read``: reads the lock inputs."""

    context: RunContext
    client: LockClient
    members: RecordedMembers
    read: Callable[[Session], LockInputs]
    on_wait: Callable[[str], None]

    def run(
        self,
        lock: Lock,
        same: ParkedStatement | None,
        record: Callable[[Session], None],
        stop: StopSignal,
        *,
        runs: bool,
    ) -> Outcome:
        """Run the lock's statement if it ``runs``, and ``record`` that it has run. ``same``: the equal statement at
        which a table of this source is parked. The outcome is neither when ``stop`` came first or the lock has changed.

        Raises FENCED, DDL_REFUSED, ETCD_UNAVAILABLE, coded errors of the target.
        """
        target = target_of(lock)
        with self._session(target, stop) as session:
            if session is None:
                return _NOT_YET
            if (self._is_optimistic or moves_values(lock)) and not lock.forced:
                wait_for_indexes(session, self.context.who.schema, [target], stop, self.on_wait)
                wait_for_jobs(session, [target], stop, self.on_wait)
                finish_computed(session, self.context.who, target, STRICT, stop)
                now = self.client.current_lock(self.context.config.task, target)
                if now != lock or stop.is_set:
                    return _NOT_YET
                seen = self.read(session)
                known = seen.runs.get(target)
                if known is not None and known.generation == lock.generation:
                    return Outcome(recorded=True)  # by the owner before
                parts_left = self._has_parts_left(session, lock)
                if not parts_left and not self._has_run(session, lock):
                    if unreached := self.unreached(session, lock, seen):
                        self._forget(session, lock)
                        return Outcome(recorded=False, unreached=unreached)
                    runs = must_run(lock, known)
                runs = runs or parts_left
            failpoints.hit("lock.checked")
            if runs:
                if same is not None and same.parked.why:
                    self._drop_again(session, lock, same.parked, stop)
                self._run(session, lock, same, stop)
            if stop.is_set:
                return _NOT_YET
            record(session)
        return Outcome(recorded=True)

    def unreached(self, session: Session, lock: Lock, seen: LockInputs) -> tuple[TablePlan, ...]:
        """The shard tables of all sources that have not reached the lock's statement, according to the records at the
        target. Raises ETCD_UNAVAILABLE, and what :meth:`RecordedMembers.unreached` raises."""
        tracker = open_tracker(session, self.context.who, "lock members", self.context.epoch)
        return self.members.unreached(lock, seen, self.client.sources(self.context.config.task), tracker)

    # --- parts

    @property
    def _is_optimistic(self) -> bool:
        return self.context.config.shard_mode == config_pb2.SHARD_MODE_OPTIMISTIC

    @contextmanager
    def _session(self, target: TargetTable, stop: StopSignal) -> Generator[Session | None]:
        """A session at the target that holds the lock of the join, or that of the target's statements; None: ``stop``
        came first. Its statement may continue at the server after a kill: the lock ends with it."""
        context = self.context
        with cancellable_session(
            stop, context.target_endpoint, Side.TARGET, name="target", read_timeout=None
        ) as session:
            subject = join_subject(target) if self._is_optimistic else subject_of([target])
            with subject_lock(session, context.who, context.epoch, subject, [target], stop, self.on_wait) as held:
                yield session if held else None

    def _has_run(self, session: Session, lock: Lock) -> bool:
        """Whether the statement has run already, and only that is not recorded: its owner was killed."""
        schema, task, _ = self.context.who
        target = target_of(lock)
        begun = ddl_progress.read_begun_by(session, schema, task, key_of_run([target], lock.generation))
        now = digest_of(session, [target]) if begun else ""
        return any(each.before != now for each in begun.values())

    def _has_parts_left(self, session: Session, lock: Lock) -> bool:
        """Whether some parts of the statement have run, at a target that does not run it as a whole: its owner was
        killed, and the other parts follow, whichever tables have reached it."""
        if dialect_of(session).combines_actions:
            return False
        schema, task, _ = self.context.who
        target = target_of(lock)
        found = divided_statements.read_by(session, schema, task, key_of_run([target], lock.generation))
        return any(each.has_begun_to_run(lambda: digest_of(session, [target])) for each in found.values())

    def _forget(self, session: Session, lock: Lock) -> None:
        """Forget that the statement was begun, which has not run: other statements will change the target before it is
        begun again."""
        schema, task, _ = self.context.who
        key = key_of_run([target_of(lock)], lock.generation)
        for source in divided_statements.begun_sources(session, schema, task, key):
            ddl_progress.delete_begun(session, SubtaskKey(schema, task, source), key)

    def _run(self, session: Session, lock: Lock, same: ParkedStatement | None, stop: StopSignal) -> None:
        context = self.context
        text, given = (lock.statement, UNKNOWN_SESSION) if same is None else (same.text, same.parked.session)
        position = same.parked.place if same is not None else "(a lock's)"
        plan = self._plan_of(session, target_of(lock))
        plans = () if plan is None else (plan,)
        with naming_missing(context.target_endpoint, plans, context.config.task, f"before the statement at {position}"):
            if plan is not None:
                sql_mode = 0 if same is None else same.parked.sql_mode
                text = with_extracted_columns(text, sql_mode, target_keys(session, plan))
            one = OneRun([target_of(lock)], text, given, position=position, run=lock.generation)
            run_once(session, context.who, context.epoch, one, stop, self.on_wait)

    def _plan_of(self, session: Session, target: TargetTable) -> TablePlan | None:
        """The plan of a shard table that is merged into ``target``."""
        members = self.context.members.read(session).sources.values()
        return next((plan for each in members for plan in each.plans.values() if plan.target == target), None)

    def _drop_again(self, session: Session, lock: Lock, item: Parked, stop: StopSignal) -> None:
        """Drop the columns at the target that the lock's statement adds again, if all shard tables have dropped them.
        No row is written before the statement has run: all shard tables are parked, and none is created or changed
        under the target's lock of the join."""
        context, target = self.context, target_of(lock)
        gone = dropped_columns.read(session, *context.who[:2])
        again = dropped_by_all(item, target, context.members.read(session), gone)
        if not again:
            return
        clauses = ", ".join(f"DROP COLUMN {quote_name(name)}" for name in again)
        text = f"ALTER TABLE {target.quoted} {clauses}"
        one = OneRun([target], text, item.session, position=item.place, run=drop_of(lock))
        run_once(session, context.who, context.epoch, one, stop, self.on_wait)


def drop_of(lock: Lock) -> str:
    """Identifies the run of a lock that drops the columns which its statement adds again."""
    return f"{lock.generation}/drop"


def target_of(lock: state_pb2.LockRecord) -> TargetTable:
    return TargetTable(lock.target_schema, lock.target_table)
