"""The locks of sharding DDLs at the leader: whenever the records change, each target table's next step."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass

from master.ddl_lock import Close, Execute, Nothing, Open, Release, Reowner, Step, Unlock, Wait, resolve, violations
from master.ddl_lock_records import Target, situation, targets
from master.ddl_lock_report import conflict, conflicts_of, waiting_for
from master.ddl_lock_values import Lock, Member, Situation
from master.leader_loop import LeaderLoop
from master.state import State
from master.store import Leadership, Store
from proto import errors
from proto.errors import ShardmergeError
from proto.etcd import Etcd
from proto.log import get_logger


@dataclass(slots=True)
class _Told:
    """What the log has of one lock. ``alert_at``: when it is told (again) that it waits; Unix seconds."""

    alert_at: float
    conflicts: frozenset[Member] = frozenset()


class DdlLocks:
    """``alert_seconds``: age at which a lock is told in the log, and the time until it is told again."""

    def __init__(self, etcd: Etcd, store: Store, leadership: Leadership, alert_seconds: float) -> None:
        self._store = store
        self._alert_seconds = alert_seconds
        self._told: dict[str, _Told] = {}
        self._loop = LeaderLoop("ddl locks", etcd, leadership, lambda: self.reconcile(time.time()), self._told.clear)

    def start(self) -> None:
        self._loop.start()

    def end(self) -> None:
        self._loop.end()

    def reconcile(self, now: float) -> None:
        """One step for each target table; what it leads to is seen as a change, and taken up then."""
        present: set[str] = set()
        with self._store.deciding() as state:
            for target in targets(state):
                seen = situation(target, state)
                if seen.lock is not None:
                    present.add(seen.lock.generation)
                    self._alert(target, seen, seen.lock, now)
                try:
                    self._advance(target, seen, state, now)
                except ShardmergeError as error:
                    if error.spec is not errors.master.CONFLICT:  # a source has told something new: the watch fires
                        get_logger().warning("ddl lock", lock=target.lock_id, error=str(error))
        self._told = {generation: told for generation, told in self._told.items() if generation in present}

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
        self._tell(target, seen, step)

    def _tell(self, target: Target, seen: Situation, step: Step) -> None:
        log = get_logger(lock=target.lock_id)
        match step:
            case Open(lock):
                log.info("ddl lock opened", owner=lock.owner, statement=lock.statement)
            case Execute(lock):
                log.info("ddl lock executing", owner=lock.owner, statement=lock.statement)
            case Reowner(lock):
                log.info("ddl lock has another owner", owner=lock.owner, stage=lock.stage.value)
            case Release(lock) | Unlock(lock):
                log.info("ddl lock released", statement=lock.statement, forced=lock.forced)
            case Close():
                log.info("ddl lock closed", statement=seen.lock.statement if seen.lock else "")
            case Wait():
                if seen.lock is not None:
                    self._tell_conflict(target, seen, seen.lock)
            case Nothing():
                pass

    def _tell_conflict(self, target: Target, seen: Situation, lock: Lock) -> None:
        """Once for each set of tables that conflict."""
        conflicts = conflicts_of(seen, lock)
        told = self._told.setdefault(lock.generation, _Told(lock.since + self._alert_seconds))
        if conflicts and told.conflicts != frozenset(conflicts):
            get_logger(lock=target.lock_id).warning("ddl lock", error=str(conflict(target, lock, conflicts)))
        told.conflicts = frozenset(conflicts)

    def _alert(self, target: Target, seen: Situation, lock: Lock, now: float) -> None:
        told = self._told.setdefault(lock.generation, _Told(lock.since + self._alert_seconds))
        if now < told.alert_at:
            return
        told.alert_at = now + self._alert_seconds
        old = errors.ddl.LOCK_WAITS(
            lock=target.lock_id,
            seconds=f"{now - lock.since:.0f}",
            waiting=f"until {waiting_for(seen, lock)}",
            statement=lock.statement,
        )
        get_logger(lock=target.lock_id).warning("ddl lock", error=str(old))
