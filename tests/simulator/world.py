"""Simulates sources, workers, masters, etcd and the target together: one history, in a random order of steps.

The first phase has faults, and every step is checked: no row is lost, doubled or changed, and each statement runs once
(BrokenRuleError of worker_steps.py). In the second phase nothing fails any more: everything ends and the target is
right, or what is left waits for tables that never reach a statement.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from shardmerge.master.ddl_lock.resolver import Change, Close, Nothing, Step, Wait, resolve, unlock, violations
from shardmerge.master.ddl_lock.situation import Lock, LockStage, ShardState, Situation, SourceReport
from shardmerge.worker.core.stored_override import OverrideKind, StoredOverride
from shardmerge.worker.target.records.parked_tables import Parked
from tests.simulator.agent_steps import Surroundings, Ways
from tests.simulator.histories import FaultKind, History
from tests.simulator.source_log import BrokenRuleError, DdlEvent, SourceServer
from tests.simulator.target import rows_of
from tests.simulator.worker_reports import accepts, parked_at, ran_at
from tests.simulator.worker_state import Look, Ran, Shared, Source
from tests.simulator.worker_steps import Worker, first_shared

MOST_STEPS = 20_000


@dataclass(slots=True)
class _Around(Surroundings):
    """What a worker meets. ``seen``: the lock as its watch has shown it; ``orders``: an operator's overrides."""

    dice: random.Random
    seen: Lock | None = None
    orders: tuple[StoredOverride, ...] = ()
    clock: float = 0.0

    def lock(self, shared: Shared) -> Lock | None:
        return self.seen

    def ops(self) -> tuple[StoredOverride, ...]:
        return self.orders

    def ahead(self) -> int | None:
        return self.dice.randrange(4)

    def parked(self, event: DdlEvent, number: int, shared: Shared) -> Parked:
        return parked_at(event, number, self.clock, shared.run.generation if shared.run is not None else "")


@dataclass(slots=True)
class _Node:
    """A source with its worker. ``is_up``: the worker runs the subtask; ``is_paused``: an operator wants it to stop;
    ``is_lost``: no live worker has the source. ``slow``: parts of the worker that seldom take a step."""

    server: SourceServer
    worker: Worker
    around: _Around
    source: Source
    is_up: bool = True
    is_paused: bool = False
    is_lost: bool = False
    slow: frozenset[int] = frozenset()
    reports: int = 0


@dataclass(slots=True)
class _Master:
    """``read``: the records on which it is about to decide, and their revisions."""

    read: tuple[Situation, tuple[int, ...]] | None = None


@dataclass(slots=True)
class World:
    """See the module. ``trace``: the steps so far, if they are recorded. ``_at_risk``: the source that
    executes a lock's statement, to which faults come more often."""

    history: History
    ways: Ways = field(default_factory=Ways)
    trace: list[str] | None = None
    nodes: list[_Node] = field(init=False)
    shared: Shared = field(init=False)
    clock: float = 1.0
    steps: int = 0
    _dice: random.Random = field(init=False)
    _masters: tuple[_Master, _Master] = field(default_factory=lambda: (_Master(), _Master()))
    _leader: int = 0
    _asleep: frozenset[int] = frozenset()
    _at_risk: _Node | None = None
    _changes: int = 0
    _opened: int = 0

    def __post_init__(self) -> None:
        history = self.history
        self._dice, self.shared, self.nodes = random.Random(history.seed), first_shared(), []
        for number, tables in enumerate(history.tables):
            server = SourceServer(number, tables, history.script)
            for action in history.actions[number]:
                server.execute(action)
            around = _Around(self._dice)
            worker = Worker(number, server.log, tables, history.lanes, around, self.ways)
            self.nodes.append(_Node(server, worker, around, worker.first()))

    def run(self) -> None:
        """Raises BrokenRuleError."""
        faults, left = self.history.faults, self.history.steps
        for _ in range(left):
            if faults and self._dice.random() < (0.4 if self._at_risk else 0.12):
                self._fault(self._dice.choice(faults))
                self._at_risk = None
            else:
                self._at_risk = None
                self._step(is_calm=False)
        self._end_faults()
        for _ in range(30):
            self._rest()
            if self._has_ended() or not self._operator_ends_wait():
                break
        self._check_end()

    # --- steps

    def _step(self, *, is_calm: bool) -> bool:
        """Take one step; False: none is possible."""
        self.clock += 0.25
        order = list(range(len(self.nodes) + 1))
        self._dice.shuffle(order)
        for actor in order:
            if actor == len(self.nodes):
                if self._master(self._leader if is_calm else self._dice.randrange(2), is_calm=is_calm):
                    return True
            elif self._work(self.nodes[actor], is_calm=is_calm):
                return True
        return False

    def _work(self, node: _Node, *, is_calm: bool) -> bool:
        around = node.around
        if not node.is_up:
            if node.is_paused or is_calm or self._dice.random() < 0.5:
                return False
            self._start(node)
            return True
        if is_calm or self._dice.random() < 0.3:
            around.seen = self.shared.lock
        around.clock = self.clock
        parts = list(node.worker.parts(node.source, self.shared))
        order = list(range(len(parts)))
        self._dice.shuffle(order)
        for at in order:
            if at in node.slow and self._dice.random() < 0.95 and not is_calm:
                continue
            found = list(parts[at]())
            if found:
                what, after, shared = found[0] if len(found) == 1 else self._dice.choice(found)
                self._take(node, what, after, shared)
                return True
        if not node.source.process.knows_lanes:
            process = node.source.process._replace(knows_lanes=True)
            self._take(node, "knows its lanes", node.source._replace(process=process), self.shared)
            return True
        return False

    def _take(self, node: _Node, what: str, after: Source, shared: Shared) -> None:
        self._note(f"{node.worker.name} {what}")
        self._at_risk = node if what.endswith("s the statement") else None
        node.reports += after.reported is not node.source.reported
        if len(shared.ran) > len(self.shared.ran):
            if shared.forced and shared.columns[-1] == self.shared.columns[-1]:
                # Tables that reach it after an operator's unlock let it run again: it has no effect.
                shared = shared._replace(ran=self.shared.ran, columns=self.shared.columns)
            else:
                self._check_run(shared.ran[-1])
        node.source, self.shared = after, shared

    def _check_run(self, ran: Ran) -> None:
        at, script = len(self.shared.ran), self.history.script
        if not self.shared.forced and (at >= len(script) or not ran.text.endswith(script[at])):
            raise BrokenRuleError(f"the target runs {ran.text} after {[each.text for each in self.shared.ran]} (I6)")

    def _note(self, what: str) -> None:
        self.steps += 1
        if self.trace is not None:
            self.trace.append(what)

    def _start(self, node: _Node) -> None:
        self._note(f"{node.worker.name} starts")
        process = node.worker.started(node.source.durable, self.shared, knows_lanes=False)
        node.source = node.source._replace(process=process)
        node.is_up, node.is_lost, node.around.seen = True, False, self.shared.lock

    # --- the masters

    def _situation(self) -> Situation:
        reports: dict[str, SourceReport | None] = {node.worker.name: node.source.reported for node in self.nodes}
        unable = frozenset(node.worker.name for node in self.nodes if node.is_paused or node.is_lost)
        return Situation(reports, self.shared.lock, unable)

    def _revisions(self) -> tuple[int, ...]:
        return (self._changes, *(node.reports for node in self.nodes))

    def _master(self, number: int, *, is_calm: bool) -> bool:
        """A master reads, or decides by what it has read; False: there is nothing to decide."""
        master = self._masters[number]
        if master.read is None or is_calm:
            master.read = self._situation(), self._revisions()
            if not is_calm and self._dice.random() < 0.5:
                self._note(f"master {number} reads")
                return True
        elif number in self._asleep and self._dice.random() < 0.9:
            return False
        situation, revisions = master.read
        master.read = None
        step = resolve(situation, self.clock, f"g{self._opened}")
        if isinstance(step, Wait | Nothing):
            return False
        if broken := violations(situation, step):
            raise BrokenRuleError("; ".join(broken))
        if number != self._leader or revisions != self._revisions():
            self._note(f"master {number} cannot write {type(step).__name__}")
            return True
        self._write(f"master {number}: {type(step).__name__}", step)
        return True

    def _write(self, what: str, step: Change) -> None:
        lock = None if isinstance(step, Close) else step.lock
        self._note(what)
        self._changes += 1
        self._opened += lock is not None and lock.generation == f"g{self._opened}"
        self.shared = self.shared._replace(lock=lock)

    # --- faults

    def _fault(self, kind: FaultKind) -> None:
        node = self._at_risk or self._dice.choice(self.nodes)
        match kind:
            case "kill":
                if node.is_up:
                    self._stop(node, "is killed")
                    node.is_lost = self._dice.random() < 0.5
            case "answer":
                self._lose_answer(node)
            case "pause":
                self._pause(node)
            case "master":
                self._note("another master leads")
                self._leader = 1 - self._leader
                self._asleep = frozenset(self._dice.sample(range(2), self._dice.randrange(2)))
                self._masters[self._dice.randrange(2)].read = None
            case "unlock":
                self._unlock()
            case "skip":
                self._skip(node)
            case "slow":
                node.slow = frozenset(self._dice.sample(range(2 * node.worker.lanes + 2), self._dice.randrange(3)))

    def _stop(self, node: _Node, what: str) -> None:
        self._note(f"{node.worker.name} {what}")
        node.is_up, self.shared = False, node.worker.released(self.shared)

    def _lose_answer(self, node: _Node) -> None:
        """The answer to what a worker publishes is lost: it is stored, or not."""
        look = node.source.process.look
        if not node.is_up or not isinstance(look, Look) or look.report == node.source.reported:
            return
        after = node.source._replace(process=node.source.process._replace(look=None))
        if self._dice.random() < 0.5:
            after = after._replace(reported=look.report)
        self._take(node, "publishes, and gets no answer", after, self.shared)

    def _pause(self, node: _Node) -> None:
        """The operator pauses a subtask, whose worker sees that later, or resumes it."""
        if not node.is_paused:
            self._note(f"{node.worker.name} is to pause")
            node.is_paused = True
        elif node.is_up:
            self._stop(node, "pauses")
        else:
            self._note(f"{node.worker.name} is to resume")
            node.is_paused = False

    def _unlock(self) -> bool:
        """The operator lets a statement run although tables have not reached it. Their rows fit the target as long as
        it loses no column."""
        lock, situation = self.shared.lock, self._situation()
        if lock is None or lock.stage is not LockStage.GATHERING or "DROP" in lock.statement:
            return False
        ready = situation.in_state(lock, ShardState.READY)
        if not ready:
            return False
        step = unlock(lock, self._dice.choice(ready).source)
        if broken := violations(situation, step):
            raise BrokenRuleError("; ".join(broken))
        self._write("the operator unlocks", step)
        self.shared = self.shared._replace(forced=True)
        return True

    def _skip(self, node: _Node) -> None:
        """The operator skips the statement at which a table is parked."""
        parked = [item for item in node.source.durable.parked if not item.released and "DROP" not in item.text]
        if parked:
            item = self._dice.choice(parked)
            at = item.place.position
            self._note(f"the operator skips {item.text} of {node.worker.name}")
            node.around.orders += (StoredOverride(kind=OverrideKind.SKIP, file=at.file, pos=at.pos),)
            self.shared = self.shared._replace(forced=True)

    # --- the end

    def _end_faults(self) -> None:
        self._note("the faults end")
        for node in self.nodes:
            node.is_paused, node.slow = False, frozenset()
            if not node.is_up:
                self._start(node)
            node.is_lost = False

    def _rest(self) -> None:
        for _ in range(MOST_STEPS):
            if not self._step(is_calm=True):
                return
        raise BrokenRuleError("the workers and masters never come to rest")

    def _has_ended(self) -> bool:
        return self.shared.lock is None and all(node.worker.has_ended(node.source) for node in self.nodes)

    def _operator_ends_wait(self) -> bool:
        """Use the ways out after what an operator has decided; False: there are none."""
        lock = self.shared.lock
        if not self.shared.forced or lock is None:
            return False
        if self._unlock():
            return True
        if lock.stage is not LockStage.EXECUTING or any(each.generation == lock.generation for each in self.shared.ran):
            return False
        if not accepts(self.shared, lock):
            self._note("the operator skips a statement that the target refuses")
            [owner] = [node for node in self.nodes if node.worker.name == lock.owner]
            same = [item for item in owner.source.durable.parked if item.text.endswith(lock.statement.split("` ")[-1])]
            places = [item.place.position for item in same if not item.released]
            orders = tuple(StoredOverride(kind=OverrideKind.SKIP, file=at.file, pos=at.pos) for at in places)
            owner.around.orders += orders
            self._stop(owner, "is paused by an error")
            self._start(owner)
            return bool(orders)
        # The operator has skipped the statement that the owner runs, so its rows do not fit the target.
        self._note("the operator runs the statement by hand")
        self.shared = ran_at(self.shared, lock)
        return True

    def _check_end(self) -> None:
        levels = {level for node in self.nodes for level in node.server.levels().values()}
        # What an operator decides about columns that are dropped may change values, and leave no way out but by hand.
        is_open = self.shared.forced and any("DROP" in clauses for clauses in self.history.script)
        if not self._has_ended():
            step: Step = resolve(self._situation(), self.clock, "none")
            is_waiting = isinstance(step, Wait) and (step.missing or step.conflicts or step.unknown)
            if (levels == {len(self.history.script)} and not is_open) or not is_waiting:
                raise BrokenRuleError(f"the history does not end: {step}, {self.shared.lock}")
            return
        for node in self.nodes:
            rows = node.server.rows()
            there = rows_of(node.source.durable.rows, node.server.log, self.shared)
            if is_open or (self.shared.forced and len(levels) > 1):
                names = {key: frozenset(dict(row) if not is_open else ()) for key, row in rows.items()}
                rows, there = (
                    {key: tuple(each for each in row if each[0] in names.get(key, ())) for key, row in found.items()}
                    for found in (rows, there)
                )
            if there != rows:
                raise BrokenRuleError(f"{node.worker.name} has {rows}, the target {there} (I1)")
