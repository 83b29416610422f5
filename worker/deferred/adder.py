"""Adds what is owed to the target tables of one subtask: all indexes of a table by one ALTER TABLE.

Who adds them: every subtask looks when its own snapshot is done, and again from time to time while it replicates, and
adds what no other source of the task is still loading. So the last one finds everything loaded. One at a time per
table, by a lock that ends with the connection: an ALTER whose client was killed goes on, and holds it until it is done.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress

import pymysql

from proto import errors, hooks
from proto.errors import ShardmergeError
from proto.log import get_logger
from worker.connection import Endpoint, Session, Side, execute, rows
from worker.cutoff import session_until
from worker.deferred import store
from worker.deferred.index import Add, Await, DeferredIndex, Fulfilled, Step, next_step
from worker.plan import TablePlan, TargetTable
from worker.trouble import errno_of, reason_of
from worker.unit import StopSignal

log = get_logger()

_MDL_WAIT_SECONDS = 30
"""How long the ALTER waits for transactions that hold the table; whoever writes to it waits behind the ALTER."""

_LOOK_SECONDS = 15.0
_LOCKED_SECONDS = 1.0
_BACKOFF_MAX_SECONDS = 300.0


class IndexAdder:
    """For one run of a subtask, after its snapshot. ``patient``: see :func:`worker.deferred.index.next_step`."""

    def __init__(
        self, endpoint: Endpoint, meta_schema: str, task: str, plans: Iterable[TablePlan], *, patient: bool
    ) -> None:
        self._endpoint = endpoint
        self._meta_schema, self._task = meta_schema, task
        self._left = sorted({plan.target for plan in plans})
        self._patient = patient
        self._doing: dict[TargetTable, str] = {}
        self._lock = threading.Lock()

    def doing(self) -> str:
        """What it is at or waits for, "" when nothing is owed."""
        with self._lock:
            return "; ".join(self._doing.values())

    def add(self, stop: StopSignal) -> None:
        """Add what may be added now and return; what other sources still load is left to them.

        Raises INDEXES_NOT_ADDED and catalogue errors of the target's connection.
        """
        try:
            while self._look(stop) and not stop.is_set:
                stop.wait(_LOCKED_SECONDS)
        except ShardmergeError:
            if not stop.is_set:  # which cuts the connection off
                raise

    def follow(self, stop: StopSignal) -> None:
        """Until nothing is owed or ``stop``. What goes wrong is told and tried again: no row depends on it."""
        failures = 0
        while self._left and not stop.is_set:
            pause = _LOOK_SECONDS
            try:
                if self._look(stop):
                    pause = _LOCKED_SECONDS
                failures = 0
            except ShardmergeError as error:
                if stop.is_set:
                    return
                failures += 1
                pause = min(_LOOK_SECONDS * 2**failures, _BACKOFF_MAX_SECONDS)
                log.warning("indexes are not added yet", error=str(error), seconds=pause)
                self._tell_all(f"{error}; next attempt within {pause:.0f} s")
            if self._left:
                stop.wait(pause)

    @contextmanager
    def beside(self, stop: StopSignal) -> Generator[None]:
        """:meth:`follow` in a thread of its own while the block runs."""
        mine = stop.child()
        thread = threading.Thread(target=self.follow, args=(mine,), name=f"indexes-{self._task}", daemon=True)
        thread.start()
        try:
            yield
        finally:
            mine.set()
            thread.join()

    def _look(self, stop: StopSignal) -> bool:
        """One round over the tables that are left; True: another connection is adding some."""
        # Without a limit on an answer: an ALTER takes what it takes.
        with session_until(stop, self._endpoint, Side.TARGET, name="target", read_timeout=None) as session:
            execute(session, f"SET SESSION lock_wait_timeout = {_MDL_WAIT_SECONDS}")
            busy = False
            for target in tuple(self._left):
                if stop.is_set:
                    return False
                if self._step(session, target) == "busy":
                    busy = True
            return busy

    def _step(self, session: Session, target: TargetTable) -> str:
        owed = store.read_owed(session, self._meta_schema, target)
        if not owed:
            self._done(target)
            return "done"
        match self._next(session, target, owed):
            case Await(sources=sources):
                self._tell(target, f"the indexes of {target.quoted} are added when {', '.join(sources)} has loaded it")
                return "waits"
            case Fulfilled() | Add():
                return self._add_alone(session, target)

    def _next(self, session: Session, target: TargetTable, owed: tuple[DeferredIndex, ...]) -> Step:
        present = store.read_present(session, target)
        loads = store.read_loads(session, self._meta_schema, self._task, target)
        return next_step(owed, present, loads, patient=self._patient)

    def _add_alone(self, session: Session, target: TargetTable) -> str:
        """Under the table's lock, where what is owed is read again."""
        name = _lock_name(target)
        [(got,)] = rows(session, "SELECT GET_LOCK(%s, 0)", (name,))
        if got != 1:
            self._tell(target, f"the indexes of {target.quoted} are being added by another connection")
            return "busy"
        try:
            match self._next(session, target, store.read_owed(session, self._meta_schema, target)):
                case Await():
                    return "waits"
                case Add(indexes=indexes):
                    self._alter(session, target, indexes)
                case Fulfilled():
                    pass
            hooks.reach("deferred.added")
            store.forget(session, self._meta_schema, target)
            self._done(target)
            return "done"
        finally:
            with suppress(pymysql.MySQLError):
                execute(session, "DO RELEASE_LOCK(%s)", (name,))

    def _alter(self, session: Session, target: TargetTable, indexes: tuple[DeferredIndex, ...]) -> None:
        names = ", ".join(index.name for index in indexes)
        self._tell(target, f"adding indexes of {target.quoted}: {names}")
        log.info("adding indexes", table=target.quoted, indexes=names)
        hooks.reach("deferred.before_alter")
        additions = ", ".join(f"ADD {index.definition}" for index in indexes)
        try:
            execute(session, f"ALTER TABLE {target.quoted} {additions}")
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
            self._doing.pop(target, None)

    def _tell(self, target: TargetTable, what: str) -> None:
        with self._lock:
            self._doing[target] = what

    def _tell_all(self, what: str) -> None:
        """One sentence in place of all: an error that names its table itself."""
        with self._lock:
            self._doing = {self._left[0]: what}


def _lock_name(target: TargetTable) -> str:
    """At most 64 characters, whatever the table is called (MySQL 8.4 Reference Manual, "Locking Functions")."""
    return "shardmerge-" + hashlib.sha1(target.quoted.lower().encode(), usedforsecurity=False).hexdigest()
