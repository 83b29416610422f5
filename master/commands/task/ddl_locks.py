"""shard-ddl-lock: lists the locks of sharding DDLs, and lets an operator decide about one."""

from __future__ import annotations

import time
from dataclasses import dataclass

from shardmerge.master.commands.task.binlog import BinlogCommand, given_place
from shardmerge.master.ddl_lock.records import Situations, Target, shard_mode_name, situation, to_lock
from shardmerge.master.ddl_lock.report import lock_message, waiting_for
from shardmerge.master.ddl_lock.resolver import unlock, violations
from shardmerge.master.ddl_lock.situation import Lock, LockStage, ShardState, Situation
from shardmerge.master.state import State
from shardmerge.master.store import Store
from shardmerge.proto import common_pb2, errors
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import state_pb2 as state_pb
from shardmerge.proto.ddl_lock_rule import moves_values
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.listed_names import listed
from shardmerge.proto.log import get_logger

_NONE = "no DDL lock exists"
_NAMED = 5
_ACTIONS = {"skip": state_pb.BinlogOp.KIND_SKIP, "exec": state_pb.BinlogOp.KIND_REPLACE}


@dataclass(frozen=True, slots=True)
class DdlLockCommands:
    store: Store
    binlog: BinlogCommand

    def show(self, request: pb.ShowDDLLocksRequest) -> pb.ShowDDLLocksResponse:
        """The locks, by id. Raises TASK_UNKNOWN."""
        state = self.store.read()
        if request.task:
            state.known_sources(request.task)
        now = time.time()
        found: list[pb.DDLLock] = []
        situations, modes = Situations(state), _shard_modes(state)
        for key, entry in state.locks.items():
            target = Target(*key)
            if request.task and target.task != request.task:
                continue
            mode = modes.get(target.task, "")
            message = lock_message(target, situations.of(target), to_lock(entry.value), now, mode)
            if not request.sources or {*message.synced, *message.unsynced}.intersection(request.sources):
                found.append(message)
        return pb.ShowDDLLocksResponse(
            result=True, msg="" if found else _NONE, locks=sorted(found, key=lambda one: one.id)
        )

    def unlock(self, request: pb.UnlockDDLLockRequest) -> pb.UnlockDDLLockResponse:
        """Store the operator's decision, which determines what source runs the statement and which tables continue.

        Raises ``errors.ddl.LOCK_*``, BAD_REQUEST.
        """
        flags = _table_flags(request)
        if flags:
            return self._unlock_tables(request, ", ".join(flags))
        if request.replace_owner and request.force_remove:
            raise errors.master.BAD_REQUEST(
                reason="shard-ddl-lock unlock: with --force-remove no source runs the statement, so it takes no --owner"
            )
        with self.store.deciding() as state:
            target, seen, lock = _find(request.id, state)
            if lock.stage is LockStage.RELEASED:
                raise errors.ddl.LOCK_RELEASED(lock=target.lock_id, waiting=waiting_for(seen, lock), task=target.task)
            owner = "" if request.force_remove else request.replace_owner or lock.owner
            _refuse_owner(owner, target, seen, lock)
            if owner == lock.owner and lock.stage is LockStage.EXECUTING:
                return pb.UnlockDDLLockResponse(result=True, msg=f"source {owner} is to run the statement already")
            _refuse_exchange(owner, target, seen, lock)
            step = unlock(lock, owner)
            broken = violations(seen, step)
            if broken:
                raise errors.ddl.LOCK_RULE(lock=target.lock_id, reason="; ".join(broken))
            self.store.change_lock(target, step, state)
        self._try_again(target.task, {lock.owner, step.lock.owner})
        get_logger().warning("ddl lock unlocked", lock=target.lock_id, owner=owner, statement=lock.statement)
        result = f"source {owner} runs the statement" if owner else "no source runs the statement; the tables continue"
        return pb.UnlockDDLLockResponse(result=True, msg=f"{result}: {lock.statement}")

    def _try_again(self, task: str, owners: set[str]) -> None:
        """Let owners that have paused because the target refused the statement try again."""
        with self.store.deciding() as state:
            running = common_pb2.STAGE_RUNNING
            pairs = [(task, source) for source in sorted(owners) if (task, source) in state.subtasks]
            pairs = [pair for pair in pairs if state.subtasks[pair].value.expected == running]
            if not pairs:
                return
            try:
                self.store.expect(running, pairs, state)
            except ShardmergeError as error:  # the decision about the lock counts all the same
                get_logger().warning("a lock's owner may need resume-task", task=task, error=str(error))

    def _unlock_tables(self, request: pb.UnlockDDLLockRequest, flags: str) -> pb.UnlockDDLLockResponse:
        """Decide about single parked tables: the target runs the statement of each of them, or does not."""

        def refused(reason: str) -> ShardmergeError:
            return errors.ddl.LOCK_OPTIMISTIC(flags=flags, lock=request.id, reason=reason)

        kind = _ACTIONS.get(request.action)
        if kind is None:
            raise refused("give --action skip or --action exec")
        if request.replace_owner or request.force_remove:
            raise refused("--owner and --force-remove are for the whole lock")
        state = self.store.read()
        target, seen, _ = _find(request.id, state)
        wanted = [
            member
            for member in seen.members()
            if member.parked is not None
            and (not request.sources or member.source in request.sources)
            and request.database in ("", member.schema)
            and request.table in ("", member.table)
        ]
        if not wanted:
            raise refused("no parked table matches")
        for member in wanted:
            parked = member.parked
            assert parked is not None  # noqa: S101 - for the type checker: they are parked
            statements = parked.statement if request.action == "exec" else ""
            self.binlog.override(target.task, member.source, given_place(parked.position), kind, statements, state)
        names = ", ".join(f"{member.source} `{member.schema}`.`{member.table}`" for member in wanted)
        if request.action == "exec":
            return pb.UnlockDDLLockResponse(result=True, msg=f"the target runs the statement of {names}")
        repair = f"when the task is synced, `dmctl compare {target.task} --repair` repairs rows that differ by this"
        return pb.UnlockDDLLockResponse(result=True, msg=f"the target does not run the statement of {names}; {repair}")


def _shard_modes(state: State) -> dict[str, str]:
    """The shard-mode of each task that has subtasks, as answers show it."""
    return {task: shard_mode_name(one.value.config) for (task, _), one in state.subtasks.items()}


def _table_flags(request: pb.UnlockDDLLockRequest) -> list[str]:
    """The flags with which single parked tables are decided about."""
    values = {
        "--action": request.action,
        "--database": request.database,
        "--table": request.table,
        "--source": request.sources,
    }
    return [flag for flag, value in values.items() if value]


def _find(lock_id: str, state: State) -> tuple[Target, Situation, Lock]:
    """Raises LOCK_UNKNOWN."""
    for key, entry in state.locks.items():
        target = Target(*key)
        if target.lock_id == lock_id:
            return target, situation(target, state), to_lock(entry.value)
    raise errors.ddl.LOCK_UNKNOWN(lock=lock_id or '""')


def _refuse_owner(owner: str, target: Target, seen: Situation, lock: Lock) -> None:
    ready = sorted({member.source for member in seen.in_state(lock, ShardState.READY)})
    if owner and owner not in ready:
        raise errors.ddl.LOCK_OWNER(lock=target.lock_id, owner=owner, ready=", ".join(ready) or "none is parked now")


def _refuse_exchange(owner: str, target: Target, seen: Situation, lock: Lock) -> None:
    """Raises LOCK_KEEPS_STRUCTURE. Rows that such a table writes before it reaches the statement do not get what the
    statement has done at the source."""
    late = seen.in_state(lock, ShardState.MISSING, ShardState.CONFLICTING)
    if owner and late and moves_values(lock):
        names = listed(sorted(f"`{member.schema}`.`{member.table}` of {member.source}" for member in late), _NAMED)
        raise errors.ddl.LOCK_KEEPS_STRUCTURE(
            lock=target.lock_id, tables=names, statement=lock.statement, task=target.task
        )
