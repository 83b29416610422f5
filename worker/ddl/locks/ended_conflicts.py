"""Finds parked tables whose conflict has ended, under ``shard-mode: optimistic``.

The conflict may end because other shard tables have changed: then the statement has a schema join now. Or because the
table's own further statements lead to a structure that has one: see way_back.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Session
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.decide.operator_override import Ops
from shardmerge.worker.ddl.decide.statement_changes import StatementChanges
from shardmerge.worker.ddl.decide.stream_tables import StreamTables
from shardmerge.worker.ddl.execute.optimistic import ColumnMoves, TargetJoin, is_strict, join_target
from shardmerge.worker.ddl.execute.statement_context import StatementContext
from shardmerge.worker.ddl.locks.later_statements import FollowingStatements, StatementConverter, rows_between
from shardmerge.worker.ddl.locks.lock_inputs import LockInputs
from shardmerge.worker.ddl.locks.way_back import (
    ChainStep,
    carried,
    changes_values,
    fits_carried,
    has_other_names,
    has_same_images,
    moves_of,
)
from shardmerge.worker.ddl.schema_join.model import NotJoinable
from shardmerge.worker.ddl.sql.table_definition import TableDefinition, parse_table_definition
from shardmerge.worker.ddl.structure.parked_definitions import ParkedDefinitions
from shardmerge.worker.ddl.structure.schema_tracker import SchemaTracker, Tracked
from shardmerge.worker.ddl.structure.structure_after import StructureMemo, parked_structure_after, reparse
from shardmerge.worker.ddl.structure.structure_digest import CanonicalCreates
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.rules.table_scope import TableScope
from shardmerge.worker.target.records import dropped_columns
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.history import interrupted_copies
from shardmerge.worker.target.records.parked_tables import Parked
from shardmerge.worker.target.records.partitioning import partitioning_for
from shardmerge.worker.target.tables.target_table import require_target
from shardmerge.worker.unit.run_context import RunContext

Queue = Mapping[int, tuple[Parked, RelayOffset]]
"""The parked tables, and the offsets from which on their rows wait."""


@dataclass(frozen=True, slots=True)
class EndedConflict:
    """The table that is parked at ``parked`` can continue with the structure ``tracked``, after the target has become
    ``join``. ``skips``: the last statement that this structure contains; None: it is the one of ``parked``.
    ``context``: of the last of these statements. ``plan``, ``creation``: of the table before them; ``moves``: of them
    all. ``changes_target``: not where the rows are written as before until a further statement is executed."""

    parked: Parked
    plan: TablePlan
    creation: CreateStatement
    tracked: Tracked
    moves: ColumnMoves
    join: TargetJoin
    skips: StatementPlace | None
    context: StatementContext
    changes_target: bool = True


@dataclass(frozen=True, slots=True)
class _Step:
    """A statement of the chain. ``begin``, ``end``: of its event group; the first one's is over where the rows wait."""

    item: Parked
    begin: RelayOffset
    end: RelayOffset
    tracked: Tracked
    step: ChainStep


class EndedConflicts:
    """For one run of a subtask, and one thread. ``ops``: the operator's overrides."""

    def __init__(
        self,
        context: RunContext,
        ops: Ops,
        canonical: CanonicalCreates,
        memo: StructureMemo,
        on_wait: Callable[[str], None],
    ) -> None:
        self._context, self._ops = context, ops
        self._canonical, self._memo, self._on_wait = canonical, memo, on_wait
        self._following = FollowingStatements(context)
        self._parked_definitions = ParkedDefinitions(memo)
        self._definitions: dict[CreateStatement, TableDefinition] = {}

    def find(
        self,
        session: Session,
        seen: LockInputs,
        waiting: Queue,
        forms: Mapping[int, str],
        tracker: SchemaTracker,
        stop: StopSignal,
    ) -> EndedConflict | None:
        """The first table whose conflict has ended. ``forms``: equal for equal statements, of the tables to look at.
        Raises retryable coded errors and ``pymysql.MySQLError``."""
        parked = {
            number: waiting[number]
            for number, item in seen.parked.items()
            if number in forms and number in waiting and item.why and not item.released
        }
        if not parked:
            return None
        self._following.update(parked, seen.plans)
        schema, task, _ = self._context.who
        gone = dropped_columns.read(session, schema, task)
        copied = interrupted_copies.read(session, self._context.who, list(parked))
        hopeless: set[tuple[object, ...]] = set()
        with ExitStack() as sessions:
            converter = StatementConverter(self._context, self._ops, tracker, sessions, stop)
            for number, (item, end) in sorted(parked.items(), key=lambda pair: pair[1][0].since):
                # A table that is copied in part has chunks that were read with the structures in between.
                further = () if number in copied else self._following.of(number)
                like = (
                    *self._likeness(seen, number, forms[number], gone, tracker),
                    tuple(self._following.form_of(statement) for statement in further),
                )
                # Of a thousand equal tables, one is looked at.
                if like in hopeless:
                    continue
                found = self._of_table(session, seen, number, item, end, further, converter, tracker, stop)
                if found is not None or stop.is_set:
                    return found
                hopeless.add(like)
        return None

    def only_waiting(
        self, session: Session, seen: LockInputs, forms: Mapping[int, str], tracker: SchemaTracker, stop: StopSignal
    ) -> frozenset[int]:
        """Of the parked tables ``forms``, whose statements did not fit when they were parked: those that would only
        wait for the other shard tables if they were parked now. ``forms``: see :meth:`find`. Raises what :meth:`find`
        raises."""
        if not forms:
            return frozenset()
        schema, task, _ = self._context.who
        gone = dropped_columns.read(session, schema, task)
        answers: dict[tuple[object, ...], bool] = {}
        found: set[int] = set()
        for number, form in forms.items():
            plan, creation, item = seen.plans[number], seen.creations[number], seen.parked[number]
            like = self._likeness(seen, number, form, gone, tracker)
            if like not in answers:
                tracked = parked_structure_after(tracker, plan, creation, item, self._context.config.task, self._memo)
                join = join_target(
                    self._statement_context(session, item, stop),
                    plan,
                    creation,
                    tracked,
                    tracker,
                    self._canonical,
                    self._parked_definitions,
                    is_mariadb=item.is_mariadb,
                )
                answers[like] = isinstance(join, NotJoinable) and join.waits
            if answers[like]:
                found.add(number)
        return frozenset(found)

    def _likeness(
        self,
        seen: LockInputs,
        number: int,
        form: str,
        gone: Mapping[dropped_columns.Member, frozenset[str]],
        tracker: SchemaTracker,
    ) -> tuple[object, ...]:
        """Equal for parked tables of equal structures at equal statements: of a thousand, one is looked at. ``form``:
        of the table's statement; ``gone``: the columns that tables have dropped while the target keeps them."""
        plan = seen.plans[number]
        digest = self._canonical.digest(plan.table, seen.creations[number], tracker)
        return plan.target, digest, form, gone.get((self._context.who.source, number), frozenset())

    def join_again(self, ended: EndedConflict, tracker: SchemaTracker) -> TargetJoin | None:
        """The target's change now, under the target's lock; None: there is none any more."""
        if not ended.changes_target:
            return ended.join
        join = join_target(
            ended.context,
            ended.plan,
            ended.creation,
            ended.tracked,
            tracker,
            self._canonical,
            self._parked_definitions,
            ended.moves,
            is_mariadb=ended.parked.is_mariadb,
        )
        return join if isinstance(join, TargetJoin) else None

    def _of_table(
        self,
        session: Session,
        seen: LockInputs,
        number: int,
        item: Parked,
        end: RelayOffset,
        further: Sequence[Statement],
        converter: StatementConverter,
        tracker: SchemaTracker,
        stop: StopSignal,
    ) -> EndedConflict | None:
        plan, creation = seen.plans[number], seen.creations[number]
        before = self._canonical.definition(plan.table, creation, tracker)
        steps: list[_Step] = []
        now, made = plan, creation
        for at in range(len(further) + 1):
            _, ddl = reparse(item)
            begin, over = end, end
            if at > 0:
                following = converter.convert(further[at - 1], now, made)
                if following is None:
                    return None
                current, ddl, begin, over = following.item, following.ddl, following.begin, following.end
            else:
                current = item
            try:
                tracked = parked_structure_after(tracker, now, made, current, self._context.config.task, self._memo)
            except ShardmergeError as error:
                if error.spec is not errors.ddl.STRUCTURE_REFUSES:
                    raise
                return None
            definition = self._definition(tracked.creation)
            strict = is_strict(current.sql_mode, now.table)
            steps.append(_Step(current, begin, over, tracked, ChainStep(ddl, tracked.table, definition, strict)))
            now = self._context.rules.plan(number, plan.source, tracked.table)
            made = tracked.creation
            found = self._ended(session, seen, plan, creation, before, steps, now, tracker, stop)
            if found is not None or stop.is_set:
                return found
        return None

    def _ended(
        self,
        session: Session,
        seen: LockInputs,
        plan: TablePlan,
        creation: CreateStatement,
        before: TableDefinition,
        steps: Sequence[_Step],
        after: TablePlan,
        tracker: SchemaTracker,
        stop: StopSignal,
    ) -> EndedConflict | None:
        """None: the conflict has not ended with the last of ``steps``. ``after``: the plan after it."""
        first, last, chain = steps[0], steps[-1], [each.step for each in steps]
        if len(steps) > 1 and changes_values(before, chain):
            return None
        context = self._statement_context(session, last.item, stop)
        join = join_target(
            context,
            plan,
            creation,
            last.tracked,
            tracker,
            self._canonical,
            self._parked_definitions,
            moves := moves_of(before, chain),
            is_mariadb=last.item.is_mariadb,
        )
        if not isinstance(join, TargetJoin):
            return None
        if len(steps) == 1:
            return EndedConflict(first.item, plan, creation, first.tracked, moves, join, None, context)
        same = has_same_images(before, chain)
        if (same and not has_other_names(chain)) or self._is_readable(after, first.end, last.begin, stop, rows=same):
            skips = last.item.place
            return EndedConflict(first.item, plan, creation, last.tracked, moves, join, skips, context)
        if not (table := carried(plan, chain)):
            return None
        texts = self._context.rules.plan(plan.shard, plan.source, table)
        if not self._fit(session, seen, texts, first.end, last.begin, stop):
            return None
        # The second statement is executed where it is; until then the target stays as it is.
        texts_now = Tracked(table, first.tracked.creation)
        none = TargetJoin((), {})
        return EndedConflict(first.item, plan, creation, texts_now, moves, none, None, context, changes_target=False)

    def _is_readable(
        self, plan: TablePlan, begin: RelayOffset, end: RelayOffset, stop: StopSignal, *, rows: bool
    ) -> bool:
        """Whether all row images of the table in this range can be read with ``plan``; not ``rows``: whether there are
        none."""
        try:
            for _ in rows_between(self._context, plan, begin, end, stop):
                if not rows:
                    return False
        except ShardmergeError as error:
            if error.spec is not errors.decode.STRUCTURE_MISMATCH:
                raise
            return False
        return not stop.is_set

    def _fit(
        self,
        session: Session,
        seen: LockInputs,
        plan: TablePlan,
        begin: RelayOffset,
        end: RelayOffset,
        stop: StopSignal,
    ) -> bool:
        """Whether all rows of this range can be written with ``plan``, see :func:`carried`."""
        others = [each for each in seen.plans.values() if each.target == plan.target and each.shard != plan.shard]
        unfit = (
            errors.decode.STRUCTURE_MISMATCH,
            errors.replicate.TARGET_TABLE_DIFFERS,
            errors.replicate.MERGED_TABLE_MISSING,
        )
        try:
            require_target(session, [*others, plan], self._context.config.task, "when a conflict had ended")
            rows = rows_between(self._context, plan, begin, end, stop)
            return all(not row.after or fits_carried(plan, row.after) for row in rows) and not stop.is_set
        except ShardmergeError as error:
            if error.spec not in unfit:
                raise
            return False

    def _definition(self, creation: CreateStatement) -> TableDefinition:
        found = self._definitions.get(creation)
        if found is None:
            found = self._definitions[creation] = parse_table_definition(creation)
        return found

    def _statement_context(self, session: Session, item: Parked, stop: StopSignal) -> StatementContext:
        context = self._context
        statement, ddl = reparse(item)
        no_tables = StreamTables((), {}, partitioning_for(context.config, 1, ()), TableScope(context.rules))
        changes = StatementChanges(no_tables, context.numbers)
        return StatementContext(
            context, statement, ddl, item.session, session, changes, stop, self._on_wait, frozenset()
        )
