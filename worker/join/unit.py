"""A subtask's own lanes, and beside them the tables that are joining it, up to the barrier where they become one.

    own lanes     ════════════════════════════════╗ stop ── to the barrier ══╗
    joining       snapshot ── own stream ── near ═╝ stop ── to the barrier ══╩═ adopted: one dealing, one transaction

The barrier is the first group end that no lane of either stream has passed. Where all stand there, the joining
tables' checkpoints are dropped and their tables added to the lanes' dealing in the target transaction that rewrites
the lanes' checkpoints: every event of a joining table is applied by its own stream before, by the lanes behind (I5).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from proto import errors, hooks, rpc, worker_pb2
from proto.errors import ShardmergeError
from proto.log import get_logger
from worker import meta
from worker.connection import Session
from worker.context import SubTaskContext
from worker.join.join import TableJoin
from worker.join.record import Joining, merged
from worker.meta import SubTaskRow
from worker.position import RelayOffset
from worker.replicate import checkpoint as checkpoints
from worker.replicate.checkpoint import Checkpoint
from worker.replicate.dealing import Dealing, dealt_anew, meeting_of
from worker.replicate.stream import Stream
from worker.replicate.unit import ReplicateUnit, end_of_group, translated
from worker.unit import Failed, Finished, Outcome, Stopped, StopSignal

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


MakeMain = Callable[[tuple[Checkpoint, ...], RelayOffset | None], ReplicateUnit]
"""The subtask's own lanes from the given checkpoints on, up to a group end (None: they live on)."""


class JoiningUnit:
    """See :class:`worker.unit.ProcessUnit`. Finished with :attr:`has_joined`: the tables are the subtask's own.

    What goes wrong with the joining tables is theirs alone: the subtask's lanes go on, the joining is tried again
    if its error passes, and waits for the operator if not.
    """

    def __init__(
        self, context: SubTaskContext, make_main: MakeMain, found: tuple[Checkpoint, ...], join: TableJoin
    ) -> None:
        """``found``: the checkpoints of the subtask's own lanes."""
        self._context = context
        self._make_main = make_main
        self._main = make_main(found, None)
        self._join = join
        self._error: ShardmergeError | None = None
        self._retry_at: float | None = None
        self.has_joined = False

    def run(self, stop: StopSignal) -> Outcome:
        own = _Running("own-lanes", self._main.run, stop.child())
        try:
            met = self._until_near(own, stop)
        finally:
            own.stop.set()
        outcome = own.outcome()
        if not met or isinstance(outcome, Failed) or stop.is_set:
            return outcome
        try:
            return self._meet(stop)
        except ShardmergeError as error:
            return Stopped() if stop.is_set else Failed(error)

    def _until_near(self, own: _Running, stop: StopSignal) -> bool:
        """Let the joining tables come up; False when there is nothing to come up to any more."""
        failures = 0
        while True:
            joining = _Running("joining", self._join.run, stop.child())
            try:
                while not joining.wait(_LOOK_SECONDS):
                    if own.is_over:
                        return False
                    if self._join.is_near() and self._main.plans is not None:
                        hooks.reach("join.near")
                        return True
            finally:
                joining.stop.set()
                outcome = joining.outcome()
            match outcome:
                case Failed(error=error):
                    self._note(error, failures)
                    failures += 1
                case _:
                    return False
            if self._wait_for_retry(own):
                return False
            self._error = self._retry_at = None

    def _note(self, error: ShardmergeError, failures: int) -> None:
        pause = min(_BACKOFF_FIRST_SECONDS * 2**failures, _BACKOFF_MAX_SECONDS)
        self._retry_at = time.monotonic() + pause if error.spec.retryable else None
        self._error = error
        log.error(
            "joining tables failed",
            task=self._context.config.task,
            source=self._context.config.source_id,
            tables=self._join.status().tables,
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

    def _meet(self, stop: StopSignal) -> Outcome:
        """Both streams have stopped: bring all lanes to one group end and make them one."""
        context, relay = self._context, self._context.relay
        found = context.at_target(lambda session: checkpoints.read_begun(session, *context.who))
        own = translated(relay, found, stop)
        joining = translated(relay, self._join.checkpoints(), stop)
        barrier = meeting_of((*own, *joining), end_of_group(relay, stop))
        log.info(
            "joining tables are taken over",
            task=self._context.config.task,
            source=self._context.config.source_id,
            at=str(barrier),
            tables=self._join.status().tables,
        )
        inner = stop.child()
        runs: list[_Running] = []
        if not _stand_at(barrier, own):
            self._main = self._make_main(own, barrier)
            runs.append(_Running("own-lanes", self._main.run, inner))
        if not _stand_at(barrier, joining):
            runs.append(_Running("joining", lambda stop: self._join.follow_to(barrier, stop), inner))
        try:
            outcomes = [run.outcome() for run in runs]
        finally:
            inner.set()
        for outcome in outcomes:
            if not isinstance(outcome, Finished):
                return outcome
        self._adopt()
        return Finished()

    def _adopt(self) -> None:
        """One transaction: the lanes' checkpoints, the dealing, no joining. Raises FENCED."""
        context, who = self._context, self._context.who
        record = self._join.joining

        def read(session: Session) -> tuple[tuple[Checkpoint, ...], tuple[Checkpoint, ...], SubTaskRow | None]:
            own = checkpoints.read_begun(session, *who)
            return own, checkpoints.read_all(session, *who, Stream.JOIN), meta.read_row(session, *who)

        found, joined, row = context.at_target(read)
        own = None if row is None else Dealing.from_json(row.dealing)
        here = {(item.relay_id, item.offset, item.skip_events) for item in (*found, *joined)}
        if own is None or row is None or Joining.from_json(row.joining) != record or len(here) != 1:
            raise errors.worker.INTERNAL(
                kind="lanes that do not meet", where=f"task {context.config.task}", reason=f"they stand at {here}"
            )
        following = dealt_anew(found, found[0], own.lanes, context.epoch)
        dealing = merged(own, record.dealing).to_json()
        hooks.reach("join.before_adopting")

        def rewrite(session: Session) -> None:
            checkpoints.replace_all(session, *who, found, following)
            checkpoints.remove(session, *who, joined, Stream.JOIN)
            hooks.reach("join.adopting")

        context.at_target(lambda session: meta.adopt(session, *who, context.epoch, dealing, rewrite))
        hooks.reach("join.adopted")
        self.has_joined = True
        log.info(
            "tables have joined",
            task=context.config.task,
            source=context.config.source_id,
            tables=self._join.status().tables,
        )

    # --- told

    def status(self) -> worker_pb2.SyncStatus:
        return self._main.status()

    def doing(self) -> str:
        return self._main.doing()

    def join_status(self) -> worker_pb2.JoinStatus:
        """Of the tables that are joining."""
        status = self._join.status()
        error, retry_at = self._error, self._retry_at
        if error is not None:
            status.phase = "failed"
            status.error.CopyFrom(rpc.error_to_proto(error))
            status.retry_seconds = max(0.0, retry_at - time.monotonic()) if retry_at is not None else 0.0
        return status

    def lowest(self) -> RelayOffset | None:
        """The lowest offset that any lane may need again; None while unknown."""
        own, joining = self._main.lowest(), self._join.lowest()
        return None if own is None or joining is None else min(own, joining)


def _stand_at(barrier: RelayOffset, found: tuple[Checkpoint, ...]) -> bool:
    return all(item.offset == barrier and not item.skip_events for item in found)
