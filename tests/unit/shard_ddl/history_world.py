"""Runs random histories of sharding DDLs: two tasks, their subtasks, the master, an operator, restarts and moves.

The master reads all records and writes later, under the condition that nothing has changed; it may die in between. The
operator pauses subtasks, unlocks, and overrides single statements, also before they are reached.
"""

from __future__ import annotations

import random
from dataclasses import replace
from types import MappingProxyType

from shardmerge.master.ddl_lock.records import Target, situation, targets, to_lock, to_record
from shardmerge.master.ddl_lock.report import lock_message
from shardmerge.master.ddl_lock.resolver import Change, Close, Nothing, Wait, resolve, unlock, violations
from shardmerge.master.ddl_lock.situation import LockStage, ShardState
from shardmerge.master.state import State, VersionedRecord
from shardmerge.proto import common_pb2, config_pb2, state_pb2
from shardmerge.worker.core.stored_override import OverrideKind, StoredOverride
from tests.simulator.source_log import TARGET, BrokenRuleError
from tests.unit.shard_ddl.history_events import AlterEvent, Histories, RenameEvent
from tests.unit.shard_ddl.history_state import Shard, SubTask, TaskState, first_state, position_of
from tests.unit.shard_ddl.history_worker import Worker, clauses_of, run_at_target, text_of_alter
from tests.unit.worker.ddl.schema_join.join_model import altered, shape_of

TASKS = ("task-1", "task-2")
KINDS = (OverrideKind.SKIP, OverrideKind.REPLACE, OverrideKind.INJECT)
WIDEST = "bigint DEFAULT NULL"

_ROUNDS, _ROUNDS_OF_EVENT = 50, 8
"""A lock needs four steps of the master, each of which it decides in one round and writes in the next one."""


class HistoryWorld:
    """The state, and every step. ``optimistic``: the shard-mode of both tasks."""

    def __init__(self, dice: random.Random, histories: Histories, *, optimistic: bool) -> None:
        self.dice, self.histories, self.optimistic = dice, histories, optimistic
        self.tasks = {name: first_state(name, histories) for name in TASKS}
        self.trace: list[str] = []
        self._pending: tuple[Target, Change, int] | None = None
        self._generations = 0

    # --- random steps

    def step(self, *, operator: bool) -> None:
        """One random step."""
        task = self.tasks[self.dice.choice(TASKS)]
        subtask = task.subtasks[self.dice.choice(sorted(task.subtasks))]
        worker = Worker(task, subtask, optimistic=self.optimistic)
        match self.dice.randrange(12):
            case 0 | 1 | 2 | 3:
                shard = self.dice.choice(subtask.shards)
                if worker.advance(shard):
                    self._log(task, f"{subtask.source}.{shard.number} advances to {shard.at} {subtask.error}")
            case 4 | 5 | 6:
                if self.dice.random() < 0.7:
                    worker.look()
                if worker.act(publishes_only=self.dice.random() < 0.1):
                    self._log(task, f"{subtask.source}: the lock agent {subtask.error}")
            case 7 | 8:
                self._master(dies=self.dice.random() < 0.1)
            case 9:
                subtask.kill()
                if self.dice.random() < 0.3:  # the source moves to another worker
                    subtask.has_worker = not subtask.has_worker
                    task.version += 1
                self._log(task, f"{subtask.source} is killed, has a worker: {subtask.has_worker}")
            case 10:
                if self.dice.random() < 0.3:
                    subtask.kill()
                    subtask.running = not subtask.running
                    task.version += 1
                    self._log(task, f"{subtask.source} runs: {subtask.running}")
            case _:
                if operator:
                    self._operator(task, subtask)

    def advance(self, name: str, source: str, number: int) -> bool:
        """Apply the next event of a shard table; False: it has none, or waits."""
        task = self.tasks[name]
        subtask = task.subtasks[source]
        return Worker(task, subtask, optimistic=self.optimistic).advance(subtask.shards[number])

    def act(self, name: str, source: str) -> bool:
        """One pass of a lock agent; whether it has changed anything."""
        task = self.tasks[name]
        worker = Worker(task, task.subtasks[source], optimistic=self.optimistic)
        worker.look()
        return worker.act()

    def lead(self) -> None:
        """Let the master decide and write until it waits for reports."""
        while self._master():
            pass

    def _log(self, task: TaskState, text: str) -> None:
        self.trace.append(f"{task.name} {text}".strip())

    # --- the master

    def state(self) -> State:
        """All records in etcd."""
        subtasks: dict[tuple[str, str], VersionedRecord[state_pb2.SubTaskRecord]] = {}
        shards: dict[tuple[str, str], VersionedRecord[state_pb2.ShardRecord]] = {}
        locks: dict[tuple[str, str, str], VersionedRecord[state_pb2.LockRecord]] = {}
        workers: dict[str, VersionedRecord[state_pb2.WorkerRecord]] = {}
        bounds: dict[str, VersionedRecord[state_pb2.BindingRecord]] = {}
        mode = config_pb2.SHARD_MODE_OPTIMISTIC if self.optimistic else config_pb2.SHARD_MODE_PESSIMISTIC
        for name, task in self.tasks.items():
            for source, subtask in task.subtasks.items():
                stage = common_pb2.STAGE_RUNNING if subtask.running else common_pb2.STAGE_PAUSED
                record = state_pb2.SubTaskRecord(expected=stage, config=config_pb2.SubTaskConfig(shard_mode=mode))
                subtasks[name, source] = VersionedRecord(record, 1)
                if subtask.published is not None:
                    shards[name, source] = VersionedRecord(subtask.published, task.version)
                if subtask.has_worker:
                    workers[f"w-{source}"] = VersionedRecord(state_pb2.WorkerRecord(), 1)
                    bounds[source] = VersionedRecord(state_pb2.BindingRecord(worker=f"w-{source}"), 1)
            if task.lock is not None:
                locks[name, *TARGET.names] = VersionedRecord(task.lock, task.version)
        none = MappingProxyType[str, object]({})
        return State(1, None, none, workers, none, bounds, none, subtasks, shards, locks)  # pyright: ignore

    def _master(self, *, dies: bool = False) -> bool:
        """Read and decide, or write what was decided; returns whether there was anything."""
        if self._pending is not None:
            target, change, version = self._pending
            self._pending = None
            task = self.tasks[target.task]
            if not dies and task.version == version:
                self._write(task, target, change)
            return True
        state = self.state()
        found = list(targets(state))
        self.dice.shuffle(found)
        for target in found:
            seen = situation(target, state)
            self._generations += 1
            change = resolve(seen, float(self._generations), f"g{self._generations}")
            if broken := violations(seen, change):
                raise BrokenRuleError("; ".join(broken))
            if not isinstance(change, Wait | Nothing):
                self._pending = target, change, self.tasks[target.task].version
                return True
        return False

    def _write(self, task: TaskState, target: Target, change: Change) -> None:
        task.lock = None if isinstance(change, Close) else to_record(target, change.lock)
        task.version += 1
        self._log(task, f"the master: {type(change).__name__} {task.lock}".replace("\n", " "))

    # --- the operator

    def _operator(self, task: TaskState, subtask: SubTask) -> None:
        if self.dice.random() < 0.3:
            self.unlock(task, force=self.dice.random() < 0.5)
        elif self.dice.random() < 0.5:
            self.override(task, subtask, self.dice.choice(subtask.shards))
        elif subtask.error:
            self.resume(task, subtask)

    def unlock(self, task: TaskState, *, force: bool) -> bool:
        """``shard-ddl-lock unlock``: the owner, or another source that is ready, runs the statement; ``force``: no
        source does."""
        if task.lock is None:
            return False
        target = Target(task.name, *TARGET.names)
        seen, lock = situation(target, self.state()), to_lock(task.lock)
        if lock.stage is LockStage.RELEASED or (lock.stage is LockStage.EXECUTING and not force):
            return False
        ready = sorted({member.source for member in seen.in_state(lock, ShardState.READY)})
        if not force and not ready:
            return False
        step = unlock(lock, "" if force else self.dice.choice(ready))
        if broken := violations(seen, step):
            raise BrokenRuleError("; ".join(broken))
        task.lock, task.version, task.by_operator = to_record(target, step.lock), task.version + 1, True
        self._log(task, f"unlock, force {force}")
        return True

    def override(self, task: TaskState, subtask: SubTask, shard: Shard, *, skip: bool = False) -> None:
        """``binlog skip|replace|inject``, or ``unlock --action skip|exec``, for the next statement of ``shard``."""
        at = next((n for n, each in enumerate(shard.history.events[shard.at :], shard.at) if _is_alter(each)), None)
        if at is None:
            return
        kind = OverrideKind.SKIP if skip else self.dice.choice(KINDS)
        event = shard.history.events[at]
        assert isinstance(event, AlterEvent)
        clauses = event.clauses if self.dice.random() < 0.5 else ("ADD KEY `own` (`id`)",)
        statements = "" if kind == OverrideKind.SKIP else text_of_alter("all", clauses)
        position = position_of(shard, at)
        subtask.ops = [op for op in subtask.ops if op.pos != position.pos]
        subtask.ops.append(StoredOverride(kind=kind, file=position.file, pos=position.pos, statements=statements))
        task.by_operator = True
        self._log(task, f"{subtask.source}.{shard.number} statement {at}: {kind.value} {statements}")

    def resume(self, task: TaskState, subtask: SubTask) -> None:
        """``resume-task``, perhaps after a change of the target by hand."""
        if subtask.error in ("target-table-differs", "row-refused-by-target"):
            self.repair_target(task)
        subtask.error = ""
        subtask.kill()
        self._log(task, f"{subtask.source} is resumed")

    def repair_target(self, task: TaskState) -> None:
        """Change the target by hand, so that it accepts the rows of all shard tables."""
        task.by_operator = True
        target = task.target
        for index in target.shape.indexes:
            if index.unique:
                run_at_target(target, (f"DROP INDEX `{index.name}`",))
        for shard in task.shards().values():
            structures = [shard.items]
            if shard.parked is not None:
                structures.append(altered(shard.items, shard.statement.clauses))
            for items in structures:
                there = {each.key: each for each in target.shape.columns}
                for column in shape_of(*items).columns:
                    if column.key == "id":
                        continue
                    verb = "MODIFY" if column.key in there else "ADD"
                    run_at_target(target, (f"{verb} COLUMN `{column.name}` {WIDEST}",), strict=False)
        for column in target.shape.columns:
            if column.unfillable and column.key != "id":
                run_at_target(target, (f"MODIFY COLUMN `{column.name}` {WIDEST}",), strict=False)
        if task.run is not None:
            task.run = replace(task.run, structure="")

    # --- the end

    def converge(self) -> None:
        """Let everything run without disturbances until nothing changes."""
        events = sum(len(table.events) for tables in self.histories.tables for table in tables)
        for task in self.tasks.values():
            for subtask in task.subtasks.values():
                if not (subtask.running and subtask.has_worker):
                    subtask.running = subtask.has_worker = True
                    task.version += 1
        for _ in range(_ROUNDS + len(TASKS) * _ROUNDS_OF_EVENT * events):
            changed = self._master()
            for task in self.tasks.values():
                for _source, subtask in sorted(task.subtasks.items()):
                    worker = Worker(task, subtask, optimistic=self.optimistic)
                    for shard in subtask.shards:
                        changed = worker.advance(shard) or changed
                    worker.look()
                    changed = worker.act() or changed
            if not changed:
                return
        raise BrokenRuleError("the subtasks and the master never come to rest")

    def has_gone_back(self) -> bool:
        """Whether a table has continued after statements that led back: it does not reach the first of them again, at
        which others may wait whose rows do not fit (docs/how-to/sharding-ddl.md, "Statements that lead back")."""
        return any(shard.skips_to for task in self.tasks.values() for shard in task.shards().values())

    def lacks_unique_index(self) -> bool:
        """Whether a table waits at a unique index that another one has added and dropped again already: that one does
        not reach the statement any more (docs/how-to/sharding-ddl.md, "Statements that lead back")."""
        return any(
            clause.startswith("ADD UNIQUE") and clause in _executed(other)
            for task in self.tasks.values()
            for shard in task.shards().values()
            if shard.parked is not None
            for clause in shard.statement.clauses
            for other in task.shards().values()
            if other is not shard and clause.removeprefix("ADD ") not in other.items
        )

    def is_renamed(self) -> bool:
        """Whether a table that waits has another name later: its statements after that are not considered
        (docs/how-to/sharding-ddl.md, "Statements that lead back")."""
        parked = [shard for task in self.tasks.values() for shard in task.shards().values() if shard.parked is not None]
        return any(isinstance(event, RenameEvent) for shard in parked for event in shard.history.events[shard.at :])

    def check_waits(self) -> None:
        """Every task that has not ended shows why, and which tables."""
        state = self.state()
        for task in self.tasks.values():
            paused = [subtask.error for subtask in task.subtasks.values() if subtask.error]
            if task.is_done() or paused:
                continue
            if task.lock is None:
                raise BrokenRuleError(f"{task.name} waits without a lock")
            target = Target(task.name, *TARGET.names)
            message = lock_message(target, situation(target, state), to_lock(task.lock), 0.0, "optimistic")
            if not message.waiting_for or "checks again" in message.waiting_for:
                raise BrokenRuleError(f"{task.name} waits for nothing: {message}")
            if not any(table.ddl for table in message.tables):
                raise BrokenRuleError(f"{task.name}: no table shows its statement: {message}")

    def let_operator_end_it(self) -> None:
        """Use the documented ways out until all tables have applied everything."""
        for _ in range(30):
            self.converge()
            self.check_waits()
            waiting = [task for task in self.tasks.values() if not task.is_done()]
            if not waiting:
                return
            for task in waiting:
                self._way_out(task)
        raise BrokenRuleError("the ways out do not end the waits")

    def _way_out(self, task: TaskState) -> None:
        paused = [subtask for subtask in task.subtasks.values() if subtask.error]
        for subtask in paused:
            if subtask.error == "ddl-refused-by-target":
                if _runs_for_others(task, subtask):
                    self.unlock(task, force=True)
                else:
                    for shard in subtask.shards:
                        self.override(task, subtask, shard, skip=True)
                self.repair_target(task)
            self.resume(task, subtask)
        if paused:
            return
        self.repair_target(task)
        if self.dice.random() < 0.5 and self.unlock(task, force=self.dice.random() < 0.5):
            return
        for subtask in task.subtasks.values():
            for shard in subtask.shards:
                if shard.parked is not None:
                    self.override(task, subtask, shard, skip=True)

    def check_target(self) -> None:
        """The target of each task that has ended has every row once, and every value unless an operator decided."""
        for task in self.tasks.values():
            if not task.is_done():
                continue
            numbers: set[int] = set()
            for (source, _), shard in task.shards().items():
                final = shard.history.final
                numbers |= final.rows.keys()
                if set(shard.items) != set(final.items):
                    raise BrokenRuleError(f"{task.name} {source} {shard.name} is recorded as {shard.items}")
                for number, row in final.rows.items() if not task.by_operator else ():
                    arrived = task.target.rows.get(number, {})
                    if any(key not in arrived or arrived[key] != value for key, value in row.items()):
                        raise BrokenRuleError(f"{task.name} {source} {shard.name}: {number} is {arrived}, not {row}")
            if numbers != task.target.rows.keys():
                raise BrokenRuleError(f"{task.name}: rows {numbers ^ task.target.rows.keys()} (I5)")
            if self.histories.same and not task.by_operator:
                self._check_structure(task)

    def _check_structure(self, task: TaskState) -> None:
        """All shard tables are equal: so is the target."""
        [wanted, *_] = [shape_of(*shard.items) for shard in task.shards().values()]
        target = task.target.shape
        columns = {(each.key, str(each.type)) for each in wanted.columns}
        unique = {each.same for each in wanted.indexes if each.unique}
        if columns != {(each.key, str(each.type)) for each in target.columns}:
            raise BrokenRuleError(f"{task.name}: {task.target.items}, not {wanted.columns}")
        if unique != {each.same for each in target.indexes if each.unique}:
            raise BrokenRuleError(f"{task.name}: {task.target.items}, not {wanted.indexes}")


def _runs_for_others(task: TaskState, subtask: SubTask) -> bool:
    """Whether the subtask runs the statement of a lock at which none of its own tables is parked any more: an operator
    has overridden it there."""
    lock = task.lock
    if lock is None or lock.stage != state_pb2.LockRecord.STAGE_EXECUTING or lock.owner != subtask.source:
        return False
    parked = (shard for shard in subtask.shards if shard.parked is not None)
    return all(shard.statement.clauses != clauses_of(lock.statement) for shard in parked)


def _executed(shard: Shard) -> set[str]:
    """The clauses of a table's statements up to where it is."""
    events = shard.history.events[: shard.at]
    return {clause for event in events if isinstance(event, AlterEvent) for clause in event.clauses}


def _is_alter(event: object) -> bool:
    return isinstance(event, AlterEvent)
