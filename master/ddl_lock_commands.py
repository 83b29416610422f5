"""shard-ddl-lock: lists the locks of sharding DDLs, and lets an operator decide about one."""

from __future__ import annotations

import time
from dataclasses import dataclass

from master.ddl_lock import unlock, violations
from master.ddl_lock_records import Target, situation, to_lock
from master.ddl_lock_report import lock_message, waiting_for
from master.ddl_lock_values import Lock, Situation, Stage, Standing
from master.state import State
from master.store import Store
from proto import errors
from proto import master_pb2 as pb
from proto.log import get_logger

_NONE = "no DDL lock exists"


@dataclass(frozen=True, slots=True)
class DdlLockCommands:
    store: Store

    def show(self, request: pb.ShowDDLLocksRequest) -> pb.ShowDDLLocksResponse:
        """The locks, by id. Raises TASK_UNKNOWN."""
        state = self.store.read()
        if request.task and not state.sources_of(request.task):
            raise errors.master.TASK_UNKNOWN(task=request.task)
        now = time.time()
        found: list[pb.DDLLock] = []
        for key, entry in state.locks.items():
            target = Target(*key)
            if request.task and target.task != request.task:
                continue
            message = lock_message(target, situation(target, state), to_lock(entry.value), now)
            if not request.sources or {*message.synced, *message.unsynced}.intersection(request.sources):
                found.append(message)
        return pb.ShowDDLLocksResponse(
            result=True, msg="" if found else _NONE, locks=sorted(found, key=lambda one: one.id)
        )

    def unlock(self, request: pb.UnlockDDLLockRequest) -> pb.UnlockDDLLockResponse:
        """Store what the operator decided; who runs the statement, and who goes on, follows from it.

        Raises ``errors.ddl.LOCK_*``, BAD_REQUEST.
        """
        _refuse_optimistic(request)
        if request.replace_owner and request.force_remove:
            raise errors.master.BAD_REQUEST(
                reason="shard-ddl-lock unlock: --force-remove lets nobody run the statement, so it takes no --owner"
            )
        with self.store.deciding() as state:
            target, seen, lock = _find(request.id, state)
            if lock.stage is Stage.RELEASED:
                raise errors.ddl.LOCK_RELEASED(lock=target.lock_id, waiting=waiting_for(seen, lock), task=target.task)
            owner = "" if request.force_remove else request.replace_owner or lock.owner
            _refuse_owner(owner, target, seen, lock)
            if owner == lock.owner and lock.stage is Stage.EXECUTING:
                return pb.UnlockDDLLockResponse(result=True, msg=f"source {owner} is to run the statement already")
            step = unlock(lock, owner)
            broken = violations(seen, step)
            if broken:
                raise errors.ddl.LOCK_RULE(lock=target.lock_id, reason="; ".join(broken))
            self.store.change_lock(target, step, state)
        get_logger().warning("ddl lock unlocked", lock=target.lock_id, owner=owner, statement=lock.statement)
        said = f"source {owner} runs the statement" if owner else "nobody runs the statement; the tables go on"
        return pb.UnlockDDLLockResponse(result=True, msg=f"{said}: {lock.statement}")


def _refuse_optimistic(request: pb.UnlockDDLLockRequest) -> None:
    given = {
        "--action": request.action,
        "--database": request.database,
        "--table": request.table,
        "--source": request.sources,
    }
    flags = [flag for flag, value in given.items() if value]
    if flags:
        raise errors.ddl.LOCK_OPTIMISTIC(flags=", ".join(flags))


def _find(lock_id: str, state: State) -> tuple[Target, Situation, Lock]:
    """Raises LOCK_UNKNOWN."""
    for key, entry in state.locks.items():
        target = Target(*key)
        if target.lock_id == lock_id:
            return target, situation(target, state), to_lock(entry.value)
    raise errors.ddl.LOCK_UNKNOWN(lock=lock_id or '""')


def _refuse_owner(owner: str, target: Target, seen: Situation, lock: Lock) -> None:
    ready = sorted({member.source for member in seen.standing(lock, Standing.READY)})
    if owner and owner not in ready:
        raise errors.ddl.LOCK_OWNER(lock=target.lock_id, owner=owner, ready=", ".join(ready) or "none waits now")
