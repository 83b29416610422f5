"""Acts on a statement before which all lanes of a stream stand.

    decide (pure) ── act, table by table ── one transaction: structures, dealing, "passed" ── the lanes go on

Every step before the transaction may be done again from its beginning, by another process, after any kill.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import MappingProxyType

from proto import config_pb2, errors, hooks
from proto.log import get_logger
from proto.state_pb2 import BinlogOp
from worker import meta
from worker.connection import Session, Side, server_info
from worker.context import SubTaskContext
from worker.cutoff import session_until
from worker.ddl import dropped, operator_records, parked, records
from worker.ddl.act import Actor
from worker.ddl.by_word import act_by_word, actions_by_word
from worker.ddl.creation import Creation
from worker.ddl.dialect import Dialect
from worker.ddl.digests import Printed
from worker.ddl.filtered import FilteredStatement, Sorted
from worker.ddl.given import given_session
from worker.ddl.online import records as online_records
from worker.ddl.online.step import Course, read_step, with_away
from worker.ddl.online.swap import Meant, OnlineChanges
from worker.ddl.operator import Ops, Word
from worker.ddl.passing import Passing, TablesStanding
from worker.ddl.plan import Action, Alter, Scene, Shard, gone_by, shards_of
from worker.ddl.reading import not_understood, read, refusal, word_about
from worker.ddl.records import StatementPlace
from worker.ddl.renames import forget_marks
from worker.ddl.routed import RoutedScope, shown
from worker.ddl.statement import Ddl
from worker.ddl.structure import Structures
from worker.ddl.surroundings import scene_of
from worker.ddl.tracker import open_tracker
from worker.ddl.versioned import Server
from worker.ddl.waiting import WaitingTables
from worker.ddl.work import Work
from worker.plan import TablePlan
from worker.quarantine import store as quarantine
from worker.relay.model import Statement
from worker.relay.queried import Queried
from worker.replicate.stream import Stream
from worker.target_table import find_stand_ins
from worker.unit import StopSignal

log = get_logger()

_NOT_AT_TARGET = Word((), own=False)

Columns = Callable[[TablesStanding], Mapping[str, str]]
"""A stream's tables, as columns of the subtask's row."""


def main_columns(standing: TablesStanding) -> Mapping[str, str]:
    """Of a subtask's own lanes."""
    return {"dealing": standing.dealing.to_json()}


@dataclass(frozen=True, slots=True)
class _Met:
    """A statement that a stream has come to. ``ddl``: None when it changes nothing, or an operator answers for it."""

    statement: Statement
    queried: Queried
    ddl: Ddl | None
    word: Word | None
    session: Session
    passing: Passing
    stop: StopSignal


class StatementDriver:
    """For one run of one stream. :meth:`act` is called by one thread.

    ``standing``: where the stream begins; ``columns``: see :data:`Columns`.
    """

    def __init__(
        self,
        context: SubTaskContext,
        stream: Stream,
        standing: TablesStanding,
        columns: Columns = main_columns,
        waiting: WaitingTables | None = None,
        entries: Mapping[StatementPlace, TablePlan] = MappingProxyType({}),
        ops: Ops = tuple,
    ) -> None:
        """``waiting``: of a subtask with a shard-mode. ``entries``: before which statement a table of the stream
        waited: behind it, it comes in."""
        self._waiting = waiting
        self._entries = entries
        self._ops = ops
        self._context = context
        self._stream = stream
        self._columns = columns
        self._waits_for = ""
        self._printed = Printed()
        self.standing = standing

    def ops(self) -> tuple[BinlogOp, ...]:
        """What an operator has said by now about the source's binlog."""
        return self._ops()

    def doing(self) -> str:
        """What it waits for, "" for nothing."""
        return self._waits_for

    def passed(self) -> StatementPlace | None:
        """The statement that the stream has passed last, asked of the target."""
        who = self._context.who
        return self._context.at_target(lambda session: records.read_passed(session, *who, self._stream))

    def act(self, statement: Statement, stop: StopSignal) -> TablesStanding | None:
        """Do what ``statement`` comes to; what the stream goes on with, None: ``stop`` came first.

        Raises the ddl.* errors, FENCED, the rules' and the target's coded errors.
        """
        context, (_, task, source) = self._context, self._context.who
        queried = context.relay.query_at(statement)
        word = word_about(context, self._ops, statement)
        statement, ddl = read(context, statement, queried, word)
        hooks.reach("ddl.before")
        target = context.target_endpoint
        with (
            session_until(stop, target, Side.TARGET, name="target", read_timeout=None) as session,
            ExitStack() as held,
        ):
            passing = Passing(self.standing)
            for place, plan in self._entries.items():
                if place.is_exactly(statement):
                    passing.enter(plan)
            work: Work | None = None
            # What has waited before the statement has been through all that it takes. What still waits for a later one
            # has been through this one too: its rows here were applied before.
            is_ours = not passing.entered and RoutedScope(self.standing.scope, beside=True)(statement)
            if is_ours and (ddl is not None or word is not None):
                work = self._act(_Met(statement, queried, ddl, word, session, passing, stop), held)
                if stop.is_set:
                    return None
            hooks.reach("ddl.before_passing")
            self._record(session, statement, passing)
            hooks.reach("ddl.passed")
            if work is not None:
                forget_marks(work)
        self._waits_for = ""
        self.standing = passing.result()
        if self._waiting is not None:
            # Also when none has parked: tables that came, went or were altered are told to the locks.
            self._waiting.park(passing.parked, statement.group_end)
        log.info(
            "a statement is passed",
            task=task,
            source=source,
            position=str(statement.position),
            statement=shown(statement),
            by_operator=word is not None,
            parked=len(passing.parked),
        )
        return self.standing

    # --- parts

    def _act(self, met: _Met, held: ExitStack) -> Work | None:
        """None: it comes to nothing. ``held``: what is held until the statement is recorded."""
        context = self._context
        scene, meant = self._meant(met)
        word = met.word
        if word is not None:
            actions = actions_by_word(word, meant.ddl, meant.statement, scene)
            self._check_held(actions, meant.statement, met.session)
            actor = self._actor(met, meant, gone_by(actions))
            act_by_word(word, actions, actor)
            actor.settle()
            return actor.work
        if meant.ddl is None:
            return None
        sorted_ = self._filtered(met, meant, scene)
        actions, passed_over = sorted_.done, sorted_.passed_over
        if not actions and not passed_over:
            return None
        if not met.queried.event.is_text:
            raise not_understood(self._context, met.statement)
        self._check_held((*actions, *passed_over), meant.statement, met.session)
        actor = self._actor(met if actions else replace(met, word=_NOT_AT_TARGET), meant, gone_by(actions))
        act_by_word(_NOT_AT_TARGET, passed_over, actor)
        is_mariadb = met.queried.is_mariadb
        for action in actions:
            if isinstance(action, Alter) and self._waiting is not None:
                if context.config.shard_mode == config_pb2.SHARD_MODE_OPTIMISTIC:
                    actor.join(action, held, is_mariadb=is_mariadb)
                else:
                    actor.park(action, is_mariadb=is_mariadb)
            else:
                actor.do(action)
            if met.stop.is_set:
                return actor.work
        actor.settle()
        return actor.work

    def _filtered(self, met: _Met, meant: Meant, scene: Scene) -> Sorted:
        """What the statement comes to by the event filters."""
        ddl, statement = meant.ddl, meant.statement
        assert ddl is not None  # noqa: S101 - for the type checker: the caller has looked

        def structures(shard: Shard) -> tuple[Creation, Creation | None]:
            if not met.queried.event.is_text:
                raise not_understood(self._context, met.statement)
            return self._actor(met, meant, frozenset()).structures_of(shard)

        found = FilteredStatement(self._context.rules.events, ddl, statement, scene, structures).sort()
        for action in found.passed_over:
            log.info(
                "an event filter passes over a statement: it does not run at the target",
                task=self._context.who[1],
                source=self._context.who[2],
                position=str(statement.position),
                statement=shown(statement),
                tables=shards_of(action),
            )
        return found

    def _meant(self, met: _Met) -> tuple[Scene, Meant]:
        """What the statement is for the task's own tables: that of a tool for online schema changes may be another."""
        scene, meant = self._scene(met), Meant(met.statement, met.ddl)
        rules, tables = self._context.rules, self.standing.scope
        if met.ddl is None or not rules.online.is_on:
            return scene, meant
        seen = online_records.read(met.session, *self._context.who)
        course = Course(rules.online, seen, tables.holds, scene)
        step = read_step(met.ddl, course)
        scene = replace(scene, shards=with_away(scene, course))
        if step.is_empty:
            return scene, meant
        if not met.queried.event.is_text:
            raise not_understood(self._context, met.statement)
        actor = self._actor(met, meant, frozenset())
        server = Server(met.queried.is_mariadb, met.queried.version)
        changes = OnlineChanges(actor.work, actor.structures, actor.dialect, self._printed, scene, seen, server)
        return scene, changes.follow(step, by_operator=met.word is not None and not met.word.own)

    def _check_held(self, actions: Sequence[Action], statement: Statement, session: Session) -> None:
        """Held rows are of the structure before the statement: raises HELD_ROWS."""
        shards = frozenset(number for action in actions for number in shards_of(action))
        count = quarantine.count_keys(session, self._context.who, shards) if shards else 0
        if count:
            raise refusal(self._context, errors.ddl.HELD_ROWS, statement, count=count)

    def _scene(self, met: _Met) -> Scene:
        return scene_of(self._context, self.standing, met.session, met.stop, waits=self._waiting is not None)

    def _actor(self, met: _Met, meant: Meant, going: frozenset[int]) -> Actor:
        context, session = self._context, met.session
        given = meant.given
        if given is None:
            # What an operator runs in its place names its moments by itself.
            ddl = None if met.word is not None and not met.word.own else met.ddl
            plans = self.standing.plans.values()
            given = given_session(context, met.statement, ddl, met.queried, plans, met.stop)
        tracker = open_tracker(session, context.who, self._stream.name, context.epoch)
        work = Work(context, meant.statement, meant.ddl, given, session, met.passing, met.stop, self._tell, going)
        dialect = Dialect(
            met.queried.is_mariadb, server_info(session).is_mariadb, lambda names: find_stand_ins(session, names)
        )
        return Actor(work, Structures(work, tracker, dialect), dialect, self._printed)

    def _tell(self, waits_for: str) -> None:
        self._waits_for = waits_for

    def _record(self, session: Session, statement: Statement, passing: Passing) -> None:
        who, stream = self._context.who, self._stream
        result = passing.result()

        def also(inner: Session) -> None:
            records.write_creations(inner, *who, passing.creations)
            parked.write(inner, *who, passing.parked)
            dropped.write(inner, *who[:2], passing.dropped)
            online_records.write(inner, *who, passing.online)
            records.write_passed(inner, *who, stream, StatementPlace.of(statement))
            for subject in sorted(passing.subjects):
                records.forget_begun(inner, *who, subject)
            operator_records.pass_all(inner, who, statement)
            hooks.reach("ddl.passing")

        meta.pass_statement(session, *who, self._context.epoch, self._columns(result), passing.tables, also)
