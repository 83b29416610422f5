"""A subtask's own lanes, and beside them the tables that are joining it, up to the barrier where they become one.

    own lanes     ════════════════════════════════════════════════════╗ stand ══╦═ go on, with the tables
    joining       snapshot ── own stream ── near ── up to the same place ╝ stand ══╝  adopted: one transaction

The meeting is a group end that no lane of either stream has passed. Where all stand there, one target transaction drops
the joining tables' checkpoints and adds their tables to the lanes' dealing: every event of a joining table is applied
by its own stream before, by the lanes behind (I5).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from proto import errors, hooks, rpc, worker_pb2
from proto.errors import ShardmergeError
from proto.log import get_logger
from worker import meta
from worker.connection import Session
from worker.context import SubTaskContext
from worker.ddl import records as ddl_records
from worker.ddl.driver import StatementDriver
from worker.ddl.records import StatementPlace
from worker.join.join import TableJoin
from worker.join.record import Joining
from worker.join.standing import is_one_place, lies_behind
from worker.meta import SubTaskRow
from worker.position import RelayOffset
from worker.replicate import checkpoint as checkpoints
from worker.replicate.checkpoint import Checkpoint
from worker.replicate.meeting import Meeting
from worker.replicate.stream import Stream
from worker.replicate.unit import ReplicateUnit
from worker.snapshot import passed as passed_marks
from worker.unit import Failed, Outcome, Stopped, StopSignal

log = get_logger()

_LOOK_SECONDS = 0.1
_BACKOFF_FIRST_SECONDS = 1.0
_BACKOFF_MAX_SECONDS = 60.0


class _Running:
    """A unit's run in a thread of its own."""

    def __init__(self, name: str, run: Callable[[StopSignal], Outcome], stop: StopSignal) -> None:
        self.stop = stop
        self._over = threading.Event()
        self._outcome: Outcome | None = None
        self._thread = threading.Thread(target=self._go, args=(run,), name=name, daemon=True)
        self._thread.start()

    def _go(self, run: Callable[[StopSignal], Outcome]) -> None:
        try:
            self._outcome = run(self.stop)
        except Exception as error:
            log.exception("unexpected error in a run")
            self._outcome = Failed(
                errors.worker.INTERNAL(kind=type(error).__name__, where=self._thread.name, reason=error)
            )
        finally:
            self._over.set()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def wait(self, seconds: float) -> bool:
        """Whether it is over within ``seconds``."""
        return self._over.wait(seconds)

    def outcome(self) -> Outcome:
        """Wait for it."""
        self._over.wait()
        return self._outcome or Stopped()


@dataclass(frozen=True, slots=True)
class _Met:
    """What is recorded of both streams where they stand. ``passed``: the last statement of each."""

    own: tuple[Checkpoint, ...]
    joined: tuple[Checkpoint, ...]
    row: SubTaskRow | None
    passed: tuple[StatementPlace | None, ...]


class Coming(Protocol):
    """Where tables come from that are to join while the subtask runs."""

    def next(self) -> TableJoin | None:
        """The tables that are to join now; None: none. Raises coded errors."""
        ...

    def taken(self, join: TableJoin) -> None:
        """``join``'s tables come from here no more: whoever asked for them has them."""
        ...

    def lowest(self) -> RelayOffset | None:
        """Where the relay log is needed from, for those to come; None: nowhere."""
        ...

    def doing(self) -> str:
        """What those to come wait for, "" for nothing."""
        ...

    def waits(self) -> bool:
        """Whether there are any to come."""
        ...


class _Nobody:
    def next(self) -> TableJoin | None:
        return None

    def taken(self, join: TableJoin) -> None:
        pass

    def lowest(self) -> RelayOffset | None:
        return None

    def doing(self) -> str:
        return ""

    def waits(self) -> bool:
        return False


NOBODY: Coming = _Nobody()


class JoiningUnit:
    """See :class:`worker.unit.ProcessUnit`: a subtask's own lanes for as long as they run, and beside them one set of
    tables after the other until they are theirs.

    What goes wrong with the joining tables is theirs alone: the subtask's lanes go on, the joining is tried again
    if its error passes, and waits for the operator if not.
    """

    def __init__(
        self,
        context: SubTaskContext,
        main: ReplicateUnit,
        driver: StatementDriver,
        meeting: Meeting,
        join: TableJoin | None,
        coming: Coming = NOBODY,
    ) -> None:
        """``main``: the subtask's own lanes; ``driver``: theirs; ``meeting``: that of both streams; ``join``: the
        tables that are to join at once."""
        self._coming = coming
        self._context = context
        self._main = main
        self._driver = driver
        self._meeting = meeting
        self._join = join
        self._error: ShardmergeError | None = None
        self._retry_at: float | None = None

    def run(self, stop: StopSignal) -> Outcome:
        own = _Running("own-lanes", self._main.run, stop.child())
        try:
            while not own.is_over:
                if self._join is None and (coming := self._next(own)) is not None:
                    # In this order: at no moment are these tables neither here nor there, when somebody asks how far
                    # the relay log is needed or whether all is applied.
                    self._join = coming
                    self._coming.taken(coming)
                if self._join is not None:
                    self._bring_in(self._join, own)
            return own.outcome()
        except ShardmergeError as error:
            return Stopped() if stop.is_set else Failed(error)
        finally:
            own.stop.set()
            own.outcome()

    def _next(self, own: _Running) -> TableJoin | None:
        """The tables that are to join now; None when ``own`` has ended before there were any."""
        while not own.wait(_LOOK_SECONDS):
            try:
                join = self._coming.next()
            except ShardmergeError as error:
                if not error.spec.retryable:
                    raise
                log.warning("tables cannot join yet", task=self._context.config.task, error=str(error))
                own.wait(_BACKOFF_FIRST_SECONDS)
                continue
            if join is not None:
                return join
        return None

    def _bring_in(self, join: TableJoin, own: _Running) -> None:
        """Until the tables have joined, or the subtask's own lanes have ended. Raises what keeps both streams from
        becoming one."""
        failures = 0
        while not own.is_over:
            joining = _Running("joining", join.run, own.stop.child())
            try:
                while not joining.wait(_LOOK_SECONDS) and not own.is_over:
                    if join.is_near() and self._main.plans is not None:
                        hooks.reach("join.near")
                        if self._meet(join, own, joining):
                            self._join = None
                            return
            finally:
                joining.stop.set()
                outcome = joining.outcome()
            match outcome:
                case Failed(error=error):
                    self._note(error, failures, join)
                    failures += 1
                case _:
                    return
            if self._wait_for_retry(own):
                return
            self._error = self._retry_at = None

    def _note(self, error: ShardmergeError, failures: int, join: TableJoin) -> None:
        pause = min(_BACKOFF_FIRST_SECONDS * 2**failures, _BACKOFF_MAX_SECONDS)
        self._retry_at = time.monotonic() + pause if error.spec.retryable else None
        self._error = error
        log.error(
            "joining tables failed",
            task=self._context.config.task,
            source=self._context.config.source_id,
            tables=join.status().tables,
            error=str(error),
            workaround=error.workaround,
            seconds=pause if error.spec.retryable else None,
        )

    def _wait_for_retry(self, own: _Running) -> bool:
        """Until the next attempt is due; True when the subtask's own lanes have ended first."""
        while not own.wait(_LOOK_SECONDS):
            if self._retry_at is not None and time.monotonic() >= self._retry_at:
                return False
        return True

    # --- coming together

    def _meet(self, join: TableJoin, own: _Running, joining: _Running) -> bool:
        """Bring all lanes of both streams to one group end and make them one; False when a stream ended before."""
        lanes = join.lanes
        assert lanes is not None  # noqa: S101 - for the type checker: it is near
        self._meeting.call()
        adopted = False
        # Once called, the subtask's own lanes must have come before they can be let go on, whatever has become of the
        # others: one that is on its way would wait for the rest, one that is not would not come.
        while not own.is_over:
            if self._main.stands(_LOOK_SECONDS) is None:
                continue
            if lanes.stands(_LOOK_SECONDS) is not None:
                adopted = self._adopt(join)
            elif not joining.is_over:
                continue
            self._meeting.dissolve()
            self._main.go_on()
            break
        return adopted

    def _adopt(self, join: TableJoin) -> bool:
        """One transaction: the dealing, no joining. All lanes stand at one place. False: they are not to become one
        there, but further on. Raises FENCED."""
        context, who = self._context, self._context.who
        record = join.joining
        tables = join.status().tables

        def read(session: Session) -> _Met:
            return _Met(
                checkpoints.read_begun(session, *who),
                checkpoints.read_all(session, *who, Stream.JOIN),
                meta.read_row(session, *who),
                tuple(ddl_records.read_passed(session, *who, stream) for stream in Stream),
            )

        met = context.at_target(read)
        found, joined, row = met.own, met.joined, met.row
        if row is None or Joining.from_json(row.joining) != record or not is_one_place((*found, *joined)):
            here = sorted({(item.relay_id, item.offset, item.skip_events) for item in (*found, *joined)})
            raise errors.worker.INTERNAL(
                kind="lanes that do not meet", where=f"task {context.config.task}", reason=f"they stand at {here}"
            )
        if not lies_behind((*found, *joined), met.passed):
            return False
        log.info(
            "joining tables are taken over",
            task=context.config.task,
            source=context.config.source_id,
            at=str(self._meeting.place),
            tables=tables,
        )

        standing = self._driver.standing.with_joined(join.standing)
        handed = join.handed_over
        hooks.reach("join.before_adopting")

        def rewrite(session: Session) -> None:
            checkpoints.remove(session, *who, joined, Stream.JOIN)
            ddl_records.forget_passed(session, *who, Stream.JOIN)
            passed_marks.write(session, *who, handed)
            hooks.reach("join.adopting")

        dealing = standing.dealing.to_json()
        context.at_target(lambda session: meta.adopt(session, *who, context.epoch, dealing, rewrite))
        hooks.reach("join.adopted")
        self._driver.standing = standing
        log.info("tables have joined", task=context.config.task, source=context.config.source_id, tables=tables)
        return True

    # --- told

    def status(self) -> worker_pb2.SyncStatus:
        """Nothing is synced while shard tables wait before a sharding DDL, or their rows come up behind it."""
        status = self._main.status()
        # In this order, here and below: tables that are taken meanwhile are seen at their new place.
        waits, join = self._coming.waits(), self._join
        if waits or (join is not None and join.replays):
            status.synced = False
        return status

    def doing(self) -> str:
        return "; ".join(phrase for phrase in (self._main.doing(), self._coming.doing()) if phrase)

    def join_status(self) -> worker_pb2.JoinStatus | None:
        """Of the tables that are joining; None when none are."""
        join = self._join
        if join is None:
            return None
        status = join.status()
        error, retry_at = self._error, self._retry_at
        if error is not None:
            status.phase = "failed"
            status.error.CopyFrom(rpc.error_to_proto(error))
            status.retry_seconds = max(0.0, retry_at - time.monotonic()) if retry_at is not None else 0.0
        return status

    def lowest(self) -> RelayOffset | None:
        """The lowest offset that any lane may need again; None while unknown."""
        own, waits, join = self._main.lowest(), self._coming.lowest(), self._join
        joining = join.lowest() if join is not None else own
        if own is None or joining is None:
            return None
        return min(place for place in (own, joining, waits) if place is not None)

    @property
    def whole(self) -> ReplicateUnit | None:
        """The subtask's own lanes, if all its tables are theirs."""
        return None if self._coming.waits() or self._join is not None else self._main
