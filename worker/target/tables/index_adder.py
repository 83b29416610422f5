"""Adds the deferred indexes of one subtask's target tables: all indexes of a table with one ALTER TABLE. A deferred
AUTO_INCREMENT is added before them.

Every subtask checks when its own snapshot has ended, and regularly while it replicates. It adds the indexes of tables
that no other source of the task is still loading, so the last source adds them. A server lock lets one session per
table do so at a time. The lock ends with the connection: the server continues the ALTER of a killed client and holds
the lock until it has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager

import pymysql

from shardmerge.proto import errors, failpoints
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.process.periodic import CLOCK, LAST, Backoff, Clock, repeat
from shardmerge.worker.core.mysql.cancellable_session import cancellable_session
from shardmerge.worker.core.mysql.connection import Endpoint, Session, Side, execute
from shardmerge.worker.core.mysql.create_table import column_item
from shardmerge.worker.core.mysql.server_errors import errno_of, reason_of
from shardmerge.worker.core.mysql.show_create import read_create_statement
from shardmerge.worker.core.stop_signal import StopSignal, running_thread
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.target.apply.statement_waits import naming_waits, user_lock_phrase
from shardmerge.worker.target.tables import deferred_index_store
from shardmerge.worker.target.tables.deferred_index import (
    AddIndexes,
    Complete,
    DeferredIndex,
    Step,
    WaitForLoads,
    adding_statement,
    next_step,
)

log = get_logger()

_MDL_WAIT_SECONDS = 30
"""How long the ALTER waits for transactions that use the table; meanwhile writes to the table wait for the ALTER."""

_LOOK_SECONDS = 15.0
_LOCKED_SECONDS = 1.0
_BACKOFF = Backoff(2 * _LOOK_SECONDS, 300.0)


class IndexAdder:
    """For one run of a subtask, after its snapshot. ``patient``: see
    :func:`shardmerge.worker.target.tables.deferred_index.next_step`. ``grows``: tables may be added with
    :meth:`watch`."""

    def __init__(
        self,
        endpoint: Endpoint,
        meta_schema: str,
        task: str,
        targets: Iterable[TargetTable],
        *,
        patient: bool,
        grows: bool = False,
        clock: Clock = CLOCK,
    ) -> None:
        self._endpoint = endpoint
        self._meta_schema, self._task = meta_schema, task
        self._left = sorted(set(targets))
        self._patient, self._grows = patient, grows
        self._clock = clock
        self._activity: dict[TargetTable, str] = {}
        self._lock = threading.Lock()

    def activity(self) -> str:
        """The current activity or wait, "" when no index is missing."""
        with self._lock:
            return "; ".join(self._activity.values())

    def watch(self, targets: Iterable[TargetTable]) -> None:
        """Look at these tables, too: their load begins, and their record may be new."""
        with self._lock:
            self._left = sorted({*self._left, *targets})

    def add(self, stop: StopSignal) -> None:
        """Add the indexes that can be added now, and return. Tables that other sources still load are left to them.

        Raises INDEXES_NOT_ADDED and catalogue errors of the target's connection.
        """
        try:
            while self._round(stop) and not stop.is_set:
                stop.wait(_LOCKED_SECONDS)
        except ShardmergeError:
            if not stop.is_set:  # a stop closes the connection
                raise

    def follow(self, stop: StopSignal) -> None:
        """Run until no index is missing and no table can be added, or ``stop``. Errors are reported and the step is
        repeated: no row depends on it."""

        def look() -> float:
            pause = _LOCKED_SECONDS if self._left and self._round(stop) else _LOOK_SECONDS
            return pause if self._left or self._grows else LAST

        def failed(error: ShardmergeError, failures: int) -> float:
            pause = _BACKOFF.seconds(failures)
            log.warning("indexes are not added yet", error=str(error), seconds=pause)
            self._set_all_activity(f"{error}; next attempt within {pause:.0f} s")
            return pause

        repeat(look, _LOOK_SECONDS, stop, first=0.0, on_error=failed, clock=self._clock)

    def running(self, stop: StopSignal) -> AbstractContextManager[None]:
        """Run :meth:`follow` in its own thread while the block runs."""
        return running_thread(f"indexes-{self._task}", self.follow, stop)

    def _round(self, stop: StopSignal) -> bool:
        """One round over the remaining tables; True: another connection is adding indexes of some."""
        # No read timeout: an ALTER may take any time.
        with cancellable_session(stop, self._endpoint, Side.TARGET, name="target", read_timeout=None) as session:
            execute(session, f"SET SESSION lock_wait_timeout = {_MDL_WAIT_SECONDS}")
            busy = False
            for target in tuple(self._left):
                if stop.is_set:
                    return False
                if self._step(session, target) == "busy":
                    busy = True
            return busy

    def _step(self, session: Session, target: TargetTable) -> str:
        owed = deferred_index_store.read_owed(session, self._meta_schema, target)
        if not owed:
            self._done(target)
            return "done"
        match self._next(session, target, owed):
            case WaitForLoads(sources=sources):
                self._set_activity(
                    target, f"the indexes of {target.quoted} are added when {', '.join(sources)} has loaded it"
                )
                return "waits"
            case Complete() | AddIndexes():
                return self._add_locked(session, target)

    def _next(self, session: Session, target: TargetTable, owed: tuple[DeferredIndex, ...]) -> Step:
        present = deferred_index_store.read_present(session, target)
        loads = deferred_index_store.read_loads(session, self._meta_schema, self._task, target)
        return next_step(owed, present, loads, patient=self._patient)

    def _add_locked(self, session: Session, target: TargetTable) -> str:
        """Add the indexes under the table's lock; the record is read again under it."""
        with deferred_index_store.table_lock(session, target, 0) as held:
            if not held:
                wait = user_lock_phrase(session, deferred_index_store.lock_name(target), [target])
                self._set_activity(target, f"adding indexes of {target.quoted}: {wait}")
                return "busy"
            match self._next(session, target, deferred_index_store.read_owed(session, self._meta_schema, target)):
                case WaitForLoads():
                    return "waits"
                case AddIndexes(indexes=indexes):
                    self._alter(session, target, indexes)
                case Complete():
                    pass
            failpoints.hit("deferred.added")
            deferred_index_store.delete(session, self._meta_schema, target)
            self._done(target)
            return "done"

    def _alter(self, session: Session, target: TargetTable, indexes: tuple[DeferredIndex, ...]) -> None:
        names = ", ".join(index.shown for index in indexes)
        doing = f"adding indexes of {target.quoted}: {names}"

        def show(wait: str) -> None:
            self._set_activity(target, f"{doing}; it waits for {wait}" if wait else doing)

        show("")
        log.info("adding indexes", table=target.quoted, indexes=names)
        failpoints.hit("deferred.before_alter")
        adding = adding_statement(target.quoted, indexes)
        try:
            with naming_waits(session, [target], show):
                # First: it copies the table, which costs less without the indexes. Indexes are added while others
                # write.
                for index in indexes:
                    if index.is_auto_increment:
                        _add_auto_increment(session, target, index.definition)
                if adding:
                    execute(session, adding)
        except pymysql.MySQLError as error:
            raise errors.snapshot.INDEXES_NOT_ADDED(
                target_schema=target.schema,
                target_table=target.table,
                indexes=names,
                reason=reason_of(error),
                errno=errno_of(error),
            ) from error
        log.info("indexes added", table=target.quoted, indexes=names)

    def _done(self, target: TargetTable) -> None:
        with self._lock:
            self._left.remove(target)
            self._activity.pop(target, None)

    def _set_activity(self, target: TargetTable, what: str) -> None:
        with self._lock:
            self._activity[target] = what

    def _set_all_activity(self, what: str) -> None:
        """Replace all activities by one sentence: an error that names its table."""
        with self._lock:
            self._activity = {self._left[0]: what}


def _add_auto_increment(session: Session, target: TargetTable, column: str) -> None:
    """Give the column AUTO_INCREMENT, as the target has the column now; the next id is then above the highest one.

    The session's sql_mode has NO_AUTO_VALUE_ON_ZERO, without which the server would replace an id 0.
    """
    item = column_item(read_create_statement(session, *target.names).text, column, numbered=True)
    if not item:
        log.warning("the column that lacks AUTO_INCREMENT is gone", table=target.quoted, column=column)
        return
    execute(session, f"ALTER TABLE {target.quoted} MODIFY COLUMN {item}")
