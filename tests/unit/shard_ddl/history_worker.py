"""Models the steps of one subtask in the random histories of sharding DDLs.

The decisions are the program's own: the schema join (join_after), the statements that lead back (way_back.py), the
columns that are added again, the operator's overrides, what is published and what a lock requires. The model replaces
the servers and the streams. A table that continues is at once in its subtask's lanes again.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from shardmerge.proto import state_pb2
from shardmerge.proto.ddl_lock_rule import shard_state
from shardmerge.worker.core.stored_override import OverrideKind
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.decide.operator_override import override_at
from shardmerge.worker.ddl.execute.optimistic import ColumnMoves, TargetJoin, join_after, moves_of_statement
from shardmerge.worker.ddl.execute.run_once import Begun, NextStep, next_step
from shardmerge.worker.ddl.locks.added_again import dropped_by_all
from shardmerge.worker.ddl.locks.lock_protocol import (
    Execute,
    Member,
    ParkedStatement,
    Release,
    next_lock_step,
    parked_statement,
    to_shard_record,
)
from shardmerge.worker.ddl.locks.parked_override import OverriddenStatement, overridden, replaces_lock_run
from shardmerge.worker.ddl.locks.recorded_members import AT_STATEMENT
from shardmerge.worker.ddl.locks.way_back import ChainStep, changes_values, has_same_images, moves_of
from shardmerge.worker.ddl.schema_join.model import NotJoinable, ShardSchema
from shardmerge.worker.ddl.sql.statement import parse_ddl
from shardmerge.worker.ddl.sql.target_statement import Changing
from shardmerge.worker.ddl.structure.schema_tracker import Tracked
from shardmerge.worker.ddl.structure.structure_digest import digest_of
from shardmerge.worker.target.members.member_cache import SourceMembers, TaskMembers
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.executed_locks import LockRun
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.statement_session import UNKNOWN_SESSION
from tests.simulator.source_log import SCHEMA, TARGET, BrokenRuleError
from tests.unit.shard_ddl.history_events import AlterEvent, RenameEvent, RowEvent, has_duplicates
from tests.unit.shard_ddl.history_state import (
    Shard,
    SubTask,
    TaskState,
    creation_of,
    plan_now,
    position_of,
    table_of,
)
from tests.unit.worker.ddl.schema_join.join_model import altered, shape_of
from tests.unit.worker.ddl.schema_join.join_rows import Model, Row, default_of, fits, squeezed

_Stage = state_pb2.LockRecord
_STATEMENTS: dict[str, tuple[str, ...]] = {}
"""The clauses of the statements' texts."""

_DIFFERS = "target-table-differs"
_REFUSED = "ddl-refused-by-target"
_COLLIDES = "row-refused-by-target"


def text_of_alter(name: str, clauses: tuple[str, ...]) -> str:
    """The statement's text; :func:`clauses_of` returns its clauses."""
    text = f"ALTER TABLE `{name}` {', '.join(clauses)}"
    _STATEMENTS[text.split("` ", 1)[1]] = clauses
    return text


def clauses_of(text: str) -> tuple[str, ...]:
    return _STATEMENTS[text.split("` ", 1)[1]]


@lru_cache(None)
def ddl_of(clauses: tuple[str, ...]) -> Changing:
    found = parse_ddl(text_of_alter("t", clauses), SCHEMA, 0)
    assert isinstance(found, Changing)
    return found


@lru_cache(None)
def after_of(items: tuple[str, ...], clauses: tuple[str, ...]) -> tuple[str, ...]:
    """The items of a table after the clauses."""
    return altered(items, clauses)


@lru_cache(None)
def digest(items: tuple[str, ...]) -> str:
    return digest_of(creation_of(items))


@lru_cache(10_000)
def parked_of(item: Parked, plan: TablePlan, after: tuple[str, ...]) -> ParkedStatement:
    """The statement at which a table is parked, and which makes ``after`` of it."""
    tracked = Tracked(table_of(plan.table.name, after), creation_of(after))
    return parked_statement(item, plan, tracked, digest(after))


class Worker:
    """The steps of one subtask. Each returns whether it has changed anything."""

    def __init__(self, task: TaskState, subtask: SubTask, *, optimistic: bool) -> None:
        self.task, self.subtask, self.optimistic = task, subtask, optimistic

    # --- the stream

    def advance(self, shard: Shard) -> bool:
        """Apply the shard table's next event."""
        event = shard.event
        if event is None or shard.parked is not None or not self.subtask.works:
            return False
        match event:
            case RowEvent():
                return self._write(shard, event)
            case RenameEvent(name=name):
                shard.name = name
            case AlterEvent():
                if shard.at >= shard.skips_to:
                    return self._alter(shard, event)
        shard.at += 1
        return True

    def _write(self, shard: Shard, event: RowEvent) -> bool:
        row = dict(event.values)
        arrived: Row = {}
        target = self.task.target
        missing = row.keys() - {each.key for each in target.shape.columns}
        for each in target.shape.columns:
            if each.key in row:
                if not fits(row[each.key], each):
                    missing.add(each.key)
                    continue
                arrived[each.key] = squeezed(row[each.key], each)
            elif each.key != "id":
                if each.unfillable:
                    missing.add(each.key)
                    continue
                arrived[each.key] = default_of(each)
        if missing:
            if not self.task.by_operator:
                raise BrokenRuleError(f"{self._name(shard)}: row {event} does not fit the target in {missing}")
            self.subtask.error = _DIFFERS
            return True
        if event.number in target.rows:
            raise BrokenRuleError(f"{self._name(shard)}: row {event} is applied twice (I5)")
        target.rows[event.number] = arrived
        if has_duplicates(target):
            del target.rows[event.number]
            self.subtask.error = _COLLIDES
            return True
        shard.at += 1
        return True

    def _alter(self, shard: Shard, event: AlterEvent) -> bool:
        begin, end = position_of(shard, shard.at), position_of(shard, shard.at + 1)
        override = override_at(tuple(self.subtask.ops), begin, end, 0)
        after = after_of(shard.items, event.clauses)
        if override is not None:
            self.task.by_operator = True
            texts = [clauses_of(text) for text in override.texts]
            texts += [event.clauses] if override.runs_original else []
            if not all(self._run(clauses) for clauses in texts):
                return True
            self._end_override(shard)
            shard.items, shard.at = after, shard.at + 1
            self._change_lanes()
            if not fits_target(self.task, shard.items):
                self.subtask.error = _DIFFERS
            return True
        if not self.optimistic:
            self._park(shard, event)
            return True
        join = self._join(shard, after, moves_of_statement(ddl_of(event.clauses), strict=event.strict))
        if isinstance(join, NotJoinable):
            self._park(shard, event, join.reason, contradicts=not join.waits)
            return True
        if join.clauses and not self._run_join(join.clauses):
            return True
        self._take(join)
        shard.items, shard.at = after, shard.at + 1
        self._change_lanes()
        return True

    def _park(self, shard: Shard, event: AlterEvent, why: str = "", *, contradicts: bool = False) -> None:
        place = StatementPlace(position_of(shard, shard.at), 0)
        text = text_of_alter(shard.name, event.clauses)
        end = position_of(shard, shard.at + 1)
        self.task.version += 1
        since = float(self.task.version)
        item = Parked(shard.number, text, SCHEMA, 0, False, UNKNOWN_SESSION, place, end, since, why, contradicts)
        shard.parked = item if self.task.run is None else replace(item, after_run=self.task.run.generation)

    def _join(self, shard: Shard, after: tuple[str, ...], moves: ColumnMoves) -> TargetJoin | NotJoinable:
        """The target's change for a statement of ``shard``."""
        others: dict[tuple[str, int], ShardSchema] = {}
        coming: list[ShardSchema] = []
        for (source, number), other in self.task.shards().items():
            if other is shard:
                continue
            one_lane = self.task.subtasks[source].one_lane or other.parked is not None
            label = f"{other.history.name} of {source}"
            others[source, number] = ShardSchema(label, shape_of(*other.items), other.dropped, one_lane)
            if other.parked is not None:
                items = after_of(other.items, other.statement.clauses)
                coming.append(ShardSchema(label, shape_of(*items)))
        own = (self.subtask.source, shard.number)
        before = ShardSchema(f"{shard.history.name} of {own[0]}", shape_of(*shard.items), shard.dropped)
        return join_after(self.task.target.shape, others, own, before, shape_of(*after), moves, coming)

    def _take(self, join: TargetJoin) -> None:
        shards = self.task.shards()
        for member, dropped in join.dropped.items():
            shards[member].dropped = dropped
        if self.task.run is not None:
            self.task.run = replace(self.task.run, structure="")

    def _change_lanes(self) -> None:
        """The lanes after a statement (StatementExecutor.check_targets)."""
        further = any(index.unique for index in self.task.target.shape.indexes)
        own = any(
            index.unique for each in self.subtask.shards if not each.parked for index in shape_of(*each.items).indexes
        )
        self.subtask.one_lane = further or (self.subtask.one_lane and own)

    def _run_join(self, clauses: tuple[str, ...]) -> bool:
        """See run_once: statements that were begun before it, and have not run, are begun after it."""
        task, before = self.task, digest(self.task.target.items)
        if not self._run(clauses, strict=True):
            return False
        now = digest(task.target.items)
        task.begun = {
            key: replace(each, before=now) if each.before == before else each for key, each in task.begun.items()
        }
        return True

    def _run(self, clauses: tuple[str, ...], *, strict: bool = True) -> bool:
        """Run a statement at the target; False: the target has refused it, and the subtask is paused."""
        if run_at_target(self.task.target, clauses, strict=strict):
            return True
        self.subtask.error = _REFUSED
        self.task.refused = True
        return False

    # --- the lock agent

    def look(self) -> None:
        """Read the lock."""
        self.subtask.view = self.task.lock

    def act(self, *, publishes_only: bool = False) -> bool:
        """One pass of the lock agent."""
        subtask, task = self.subtask, self.task
        if not subtask.works:
            return False
        parked = {shard.number: shard.parked for shard in subtask.shards if shard.parked is not None}
        overrides = overridden(tuple(subtask.ops), parked)
        if overrides and self._override(overrides):
            return True
        waits = {number: self._waiting(number, item) for number, item in parked.items()}
        waits |= self._without_contradiction(waits)
        self._decline_on(subtask.view)
        waits |= {
            number: replace(one, contradicts=True)
            for number, one in waits.items()
            if subtask.declined and subtask.view is not None and one.form == subtask.view.form
        }
        withdrawn = subtask.withdrawn
        if withdrawn is not None and withdrawn in waits:
            waits[withdrawn] = replace(waits[withdrawn], contradicts=True)
        members = [
            Member(plan_now(subtask.source, shard), digest(shard.items), waits.get(shard.number))
            for shard in subtask.shards
        ]
        runs = {TARGET: task.run} if task.run is not None else {}
        record = to_shard_record(1, members, runs, {}, {TARGET: subtask.declined})
        if record != subtask.published:
            subtask.published, task.version = record, task.version + 1
            return True
        if publishes_only:
            return False
        if self.optimistic and not overrides and self._end_conflict(waits):
            return True
        lock = subtask.view
        if lock is None:
            return False
        match next_lock_step(lock, subtask.source, task.run, members):
            case Execute(runs=runs):
                return not subtask.declined and self._execute(lock, waits, overrides, runs=runs)
            case Release(freed=freed):
                for item in freed:
                    self._release(subtask.shards[item.parked.number])
                return True
            case None:
                return False

    def _waiting(self, number: int, item: Parked) -> ParkedStatement:
        shard = self.subtask.shards[number]
        after = after_of(shard.items, shard.statement.clauses)
        return parked_of(item, plan_now(self.subtask.source, shard), after)

    def _without_contradiction(self, waits: dict[int, ParkedStatement]) -> dict[int, ParkedStatement]:
        """See LockAgent._added_again and LockAgent._only_waiting."""
        found: dict[int, ParkedStatement] = {}
        for number, one in waits.items():
            if not one.contradicts:
                continue
            shard = self.subtask.shards[number]
            event = shard.statement
            moves = moves_of_statement(ddl_of(event.clauses), strict=event.strict)
            join = self._join(shard, after_of(shard.items, event.clauses), moves)
            if (isinstance(join, NotJoinable) and join.waits) or dropped_by_all(
                one.parked, TARGET, self._members(), self._dropped()
            ):
                found[number] = replace(one, contradicts=False)
        return found

    def _members(self) -> TaskMembers:
        sources = {
            source: SourceMembers(
                {}, {each.number: plan_now(source, each) for each in subtask.shards}, {}, {}, None, None
            )
            for source, subtask in self.task.subtasks.items()
        }
        return TaskMembers(sources, {})

    def _dropped(self) -> dict[tuple[str, int], frozenset[str]]:
        return {member: shard.dropped for member, shard in self.task.shards().items()}

    def _end_conflict(self, waits: dict[int, ParkedStatement]) -> bool:
        """See LockAgent._end_conflict: a table is withdrawn, published, and continues unless its lock is at work."""
        subtask, lock = self.subtask, self.task.lock
        if subtask.withdrawn is None:
            view = subtask.view
            at_work = view.form if view is not None and view.stage != _Stage.STAGE_GATHERING else ""
            free = (number for number, one in waits.items() if one.form != at_work)
            found = next((number for number in free if self._ended(subtask.shards[number]) is not None), None)
            subtask.withdrawn = found
            return found is not None
        number, subtask.withdrawn = subtask.withdrawn, None
        if number not in waits:
            return True
        if lock is not None and lock.stage != _Stage.STAGE_GATHERING and lock.form == waits[number].form:
            return False
        shard = subtask.shards[number]
        ended = self._ended(shard)
        if ended is None:
            return True
        join, items, skips_to = ended
        if join.clauses and not self._run_join(join.clauses):
            return True
        self._take(join)
        shard.skips_to = skips_to
        self._release(shard, items)
        return True

    def _ended(self, shard: Shard) -> tuple[TargetJoin, tuple[str, ...], int] | None:
        """See EndedConflicts: the target's change, the structure, and where its own statements begin again."""
        if shard.parked is None or not shard.parked.why:
            return None
        steps: list[ChainStep] = []
        items, before = shard.items, shape_of(*shard.items)
        for at in range(shard.at, len(shard.history.events)):
            event = shard.history.events[at]
            if isinstance(event, RowEvent):
                continue
            begin, end = position_of(shard, at), position_of(shard, at + 1)
            if not isinstance(event, AlterEvent) or override_at(tuple(self.subtask.ops), begin, end, 0) is not None:
                return None
            items = after_of(items, event.clauses)
            steps.append(ChainStep(ddl_of(event.clauses), table_of(shard.name, items), shape_of(*items), event.strict))
            if len(steps) > 1 and changes_values(before, steps):
                continue
            moves = moves_of(before, steps)
            join = self._join(shard, items, moves)
            if not isinstance(join, TargetJoin):
                continue
            if len(steps) == 1:
                return join, items, 0
            rows = any(isinstance(each, RowEvent) for each in shard.history.events[shard.at : at])
            if has_same_images(before, steps) or not rows:
                return join, items, at + 1
        return None

    def _release(self, shard: Shard, items: tuple[str, ...] | None = None) -> None:
        assert shard.parked is not None
        shard.items = after_of(shard.items, shard.statement.clauses) if items is None else items
        shard.parked, shard.at = None, shard.at + 1
        shard.dropped -= {column.key for column in shape_of(*shard.items).columns}
        further = any(index.unique for index in self.task.target.shape.indexes)
        self.subtask.one_lane = self.subtask.one_lane or further

    def _override(self, overrides: dict[int, OverriddenStatement]) -> bool:
        """See LockAgent._apply_overrides; True when it has changed anything."""
        subtask, task = self.subtask, self.task
        locks = () if subtask.view is None else (subtask.view,)
        for number, one in overrides.items():
            shard = subtask.shards[number]
            if one in subtask.injected:
                continue
            if replaces_lock_run(one, plan_now(subtask.source, shard), locks, subtask.source, task.run):
                continue
            task.by_operator = True
            if not all(self._run(clauses_of(text)) for text in one.override.texts):
                return True
            if one.override.runs_original:
                subtask.injected.add(one)
                return True
            if fits_target(task, after_of(shard.items, shard.statement.clauses)):
                self._end_override(shard)
                self._release(shard)
                return True
            # The statements have run; the table waits until the target fits.
            at = next(at for at, op in enumerate(subtask.ops) if op.pos == one.parked.place.position.pos)
            if subtask.ops[at].statements:
                subtask.ops[at] = replace(subtask.ops[at], statements="", kind=OverrideKind.SKIP)
                return True
        return False

    def _end_override(self, shard: Shard) -> None:
        pos = position_of(shard, shard.at).pos
        self.subtask.ops = [op for op in self.subtask.ops if op.pos != pos]

    def _execute(
        self,
        lock: state_pb2.LockRecord,
        waits: dict[int, ParkedStatement],
        overrides: dict[int, OverriddenStatement],
        *,
        runs: bool,
    ) -> bool:
        """See LockAgent._execute: one step of it."""
        task, generation = self.task, lock.generation
        here = [item for item in waits.values() if item.form == lock.form]
        replaced = (one for item in here if (one := overrides.get(item.parked.number)) is not None)
        override = next((one for one in replaced if not one.override.runs_original), None)
        if override is not None:
            task.by_operator = True
            if not all(self._run(clauses_of(text)) for text in override.override.texts):
                return True
            after = [after_of(shard.items, shard.statement.clauses) for shard in self._parked_at(here)]
            self._end_override(self.subtask.shards[override.parked.number])
            if not all(fits_target(task, items) for items in after):
                self.subtask.error = _DIFFERS
                return True
        elif self._declines(lock):
            return True
        elif runs:
            now = digest(task.target.items)
            if here and here[0].parked.why and self._drop_again(here[0].parked, generation):
                return True
            match next_step(task.begun.get(generation), lock.statement, now):
                case NextStep.BEGIN:
                    task.begun[generation] = Begun(lock.statement, now)
                    return True
                case NextStep.RUN:
                    if self.optimistic and not lock.forced and self._unreached(lock):
                        raise BrokenRuleError(f"{lock.statement} runs before {self._unreached(lock)} have reached it")
                    # An operator has let a lock run although other tables change the target meanwhile.
                    if lock.before != lock.after and generation in task.runs and not lock.forced:
                        raise BrokenRuleError(f"the statement of lock {lock} runs twice (I6)")
                    if self._run(clauses_of(lock.statement)):
                        task.runs.append(generation)
                        if digest(task.target.items) != now:
                            return True
                    else:
                        return True
                case NextStep.HAS_RUN:
                    pass
        task.begun.pop(generation, None)
        task.run = LockRun(generation, lock.after)
        return True

    def _decline_on(self, lock: state_pb2.LockRecord | None) -> None:
        """See LockAgent._held_back."""
        subtask = self.subtask
        if not subtask.declined:
            return
        stays = lock is not None and lock.generation == subtask.declined and lock.owner == subtask.source
        if lock is None or not stays or lock.forced or lock.stage == _Stage.STAGE_RELEASED or not self._unreached(lock):
            subtask.declined = ""

    def _declines(self, lock: state_pb2.LockRecord) -> bool:
        """See LockRunner.run: under the target's lock of the join, the lock and the records are read again."""
        task, generation = self.task, lock.generation
        if not self.optimistic or lock.forced:
            return False
        if task.lock != lock:
            return True
        begun = task.begun.get(generation)
        if (begun is not None and begun.before != digest(task.target.items)) or not self._unreached(lock):
            return False
        # It may have run, and a table that has passed it has undone that by its own next statement (DROP of a unique
        # index), before the run was recorded: then it runs once more when that table has reached it again.
        if task.begun.pop(generation, None) is not None:
            task.runs = [each for each in task.runs if each != generation]
        self.subtask.declined = generation
        return True

    def _unreached(self, lock: state_pb2.LockRecord) -> list[str]:
        """The shard tables that have not reached the lock's statement, whatever is published of them."""
        found: list[str] = []
        for (source, _), shard in self.task.shards().items():
            waits = None
            if shard.parked is not None:
                after = after_of(shard.items, shard.statement.clauses)
                waits = parked_of(shard.parked, plan_now(source, shard), after)
            if shard_state(digest(shard.items), waits, lock) not in AT_STATEMENT:
                found.append(f"{source} {shard.name}")
        return found

    def _parked_at(self, here: list[ParkedStatement]) -> list[Shard]:
        return [self.subtask.shards[item.parked.number] for item in here]

    def _drop_again(self, item: Parked, generation: str) -> bool:
        """See LockAgent._drop_again."""
        key = f"{generation}/drop"
        if key in self.task.begun or generation in self.task.begun:
            return False
        again = dropped_by_all(item, TARGET, self._members(), self._dropped())
        there = {each.key for each in self.task.target.shape.columns}
        clauses = tuple(f"DROP COLUMN `{name}`" for name in again if name.lower() in there)
        if not clauses:
            return False
        self.task.begun[key] = Begun("", "")
        self._run(clauses)
        return True

    def _name(self, shard: Shard) -> str:
        return f"{self.subtask.source} {shard.name}"


def run_at_target(target: Model, clauses: tuple[str, ...], *, strict: bool = True) -> bool:
    """Whether the target executes the statement; otherwise it is unchanged."""
    before = Model(target.items, dict(target.rows))
    try:
        is_done = target.alter(clauses, strict=strict)
    except (AssertionError, ValueError):  # the column or index exists, or does not exist
        is_done = False
    if is_done and has_duplicates(target):
        is_done = False  # error 1062
    if not is_done:
        target.items, target.rows = before.items, before.rows
    return is_done


def fits_target(task: TaskState, items: tuple[str, ...]) -> bool:
    """Whether the target accepts rows of this structure (require_target)."""
    own = {column.key: column for column in shape_of(*items).columns}
    for column in task.target.shape.columns:
        mine = own.pop(column.key, None)
        if mine is None and column.unfillable:
            return False
        if mine is not None and mine.type.bare == "bigint" and column.type.bare == "int":
            return False
        if mine is not None and mine.nullable and not column.nullable:
            return False
    return not own
