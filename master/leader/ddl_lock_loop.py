"""Moves the locks of sharding DDLs at the leader: one step for each target table whenever the records change."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass

from shardmerge.master.ddl_lock.records import Situations, Target, targets
from shardmerge.master.ddl_lock.report import conflict, conflicts_of, waiting_for
from shardmerge.master.ddl_lock.resolver import (
    ChangeOwner,
    Close,
    LetOwnerExecute,
    Nothing,
    Open,
    ReleaseTables,
    Step,
    TakeBack,
    Unlock,
    Wait,
    resolve,
    violations,
)
from shardmerge.master.ddl_lock.situation import Lock, LockMember, Situation
from shardmerge.master.leader.counts import LeaderCounts
from shardmerge.master.leader.loop import LeaderLoop
from shardmerge.master.state import State
from shardmerge.master.store import Leadership, Store
from shardmerge.master.task_history.steps import conflict_event, lock_event
from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd import Etcd
from shardmerge.proto.http.loops import LoopAges
from shardmerge.proto.log import get_logger
from shardmerge.proto.task_history.event import History


@dataclass(slots=True)
class _AlertState:
    """What was logged of one lock. ``alert_at``: when to log (again) that it waits; Unix seconds."""

    alert_at: float
    conflicts: frozenset[LockMember] = frozenset()


class DdlLockLoop:
    """``alert_seconds``: age at which a lock is logged as waiting, and the time until it is logged again."""

    def __init__(
        self,
        etcd: Etcd,
        store: Store,
        leadership: Leadership,
        alert_seconds: float,
        counts: LeaderCounts,
        loops: LoopAges,
        history: History,
    ) -> None:
        self._history = history
        self._store = store
        self._counts = counts
        self._alert_seconds = alert_seconds
        self._alerts: dict[str, _AlertState] = {}
        self._loop = LeaderLoop(
            "ddl locks", etcd, leadership, lambda: self.reconcile(time.time()), self._alerts.clear, loops
        )

    def start(self) -> None:
        self._loop.start()

    def end(self) -> None:
        self._loop.end()

    def reconcile(self, now: float) -> None:
        """Take one step for each target table. A step changes records, so that the next call takes the next step."""
        present: set[str] = set()
        with self._store.deciding() as state:
            situations = Situations(state)
            for target in targets(state):
                seen = situations.of(target)
                if seen.lock is not None:
                    present.add(seen.lock.generation)
                    self._alert(target, seen, seen.lock, now)
                try:
                    self._advance(target, seen, state, now)
                except ShardmergeError as error:
                    if error.spec is not errors.master.CONFLICT:  # a source has reported something new: the watch fires
                        self._counts.lock_failed(target.task)
                        get_logger().warning("ddl lock", lock=target.lock_id, error=str(error))
        self._alerts = {generation: alert for generation, alert in self._alerts.items() if generation in present}

    def _advance(self, target: Target, seen: Situation, state: State, now: float) -> None:
        step = resolve(seen, now, uuid.uuid4().hex)
        broken = violations(seen, step)
        if broken:
            raise errors.ddl.LOCK_RULE(lock=target.lock_id, reason="; ".join(broken))
        match step:
            case Nothing():
                return
            case Wait():
                pass
            case _:
                self._store.change_lock(target, step, state)
        event = lock_event(target, seen.lock, step, now)
        if event is not None:
            self._history.add(event)
        self._log_step(target, seen, step)

    def _log_step(self, target: Target, seen: Situation, step: Step) -> None:
        log = get_logger(lock=target.lock_id)
        match step:
            case Open(lock):
                log.info("ddl lock opened", owner=lock.owner, statement=lock.statement)
            case LetOwnerExecute(lock):
                log.info("ddl lock executing", owner=lock.owner, statement=lock.statement)
            case ChangeOwner(lock):
                log.info("ddl lock has another owner", owner=lock.owner, stage=lock.stage.value)
            case TakeBack(lock):
                log.info("ddl lock gathers again", owner=lock.owner, statement=lock.statement)
            case ReleaseTables(lock) | Unlock(lock):
                log.info("ddl lock released", statement=lock.statement, forced=lock.forced)
            case Close():
                log.info("ddl lock closed", statement=seen.lock.statement if seen.lock else "")
            case Wait():
                if seen.lock is not None:
                    self._log_conflict(target, seen, seen.lock)
            case Nothing():
                pass

    def _log_conflict(self, target: Target, seen: Situation, lock: Lock) -> None:
        """Log a conflict once for each set of tables."""
        conflicts = conflicts_of(seen, lock)
        alert = self._alerts.setdefault(lock.generation, _AlertState(lock.since + self._alert_seconds))
        if conflicts and alert.conflicts != frozenset(conflicts):
            error = conflict(target, lock, conflicts)
            get_logger(lock=target.lock_id).warning("ddl lock", error=str(error))
            self._history.add(conflict_event(target, lock, error, time.time()))
        alert.conflicts = frozenset(conflicts)

    def _alert(self, target: Target, seen: Situation, lock: Lock, now: float) -> None:
        alert = self._alerts.setdefault(lock.generation, _AlertState(lock.since + self._alert_seconds))
        if now < alert.alert_at:
            return
        alert.alert_at = now + self._alert_seconds
        old = errors.ddl.LOCK_WAITS(
            lock=target.lock_id,
            seconds=f"{now - lock.since:.0f}",
            waiting=f"for {waiting_for(seen, lock)}",
            statement=lock.statement,
        )
        get_logger(lock=target.lock_id).warning("ddl lock", error=str(old))
