"""Two streams execute the same statements: each table of the source is in exactly one of them after each statement."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from shardmerge.proto import config_pb2
from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.table_numbers import TableNumbers
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.decide.actions import Alter, Create, DdlContext, Drop, Rename, ShardTarget, actions_of
from shardmerge.worker.ddl.decide.given_names import dropped_elsewhere, given_names, left_to_others, reserved_number
from shardmerge.worker.ddl.decide.routed_statements import RoutedScope
from shardmerge.worker.ddl.decide.statement_changes import NameChanges, StatementChanges
from shardmerge.worker.ddl.decide.stream_tables import StreamTables
from shardmerge.worker.ddl.decide.track import Elsewhere, Leaving, name_of, own_tracks
from shardmerge.worker.ddl.sql.statement import Ddl, parse_ddl
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.table_scope import TableName, TableScope
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.partitioning import Partitioning
from tests.support.plans import integer, table_plan

RULES = Rules.from_config(config_pb2.SubTaskConfig(task="t", meta_schema="dm_meta", case_sensitive=True))
NOTHING = CreateStatement("", "")


def plan_of(number: int, name: str) -> TablePlan:
    return table_plan((integer(),), (0,), shard=number, schema="d", name=name)


class Streams:
    """The main stream has t0 and t1, and a stream of joining tables t2 and t3."""

    def __init__(self) -> None:
        plans = [plan_of(number, f"t{number}") for number in range(4)]
        tables = tuple(plan.table for plan in plans)
        self.numbers = TableNumbers(4)
        self.main = StreamTables(
            tables,
            own_tracks(plans[:2]) | {number: Elsewhere(("d", f"t{number}")) for number in (2, 3)},
            Partitioning(1, frozenset(), frozenset({0, 1}), "{}"),
            TableScope(RULES, frozenset({("d", "t2"), ("d", "t3")})),
        )
        self.joining = StreamTables(
            tables,
            own_tracks(plans[2:]),
            Partitioning(1, frozenset(), frozenset({2, 3}), "{}"),
            TableScope(RULES, only=frozenset({("d", "t2"), ("d", "t3")})),
        )

    def execute(self, text: str, at: int) -> None:
        self.main = self._after(self.main, text, at)
        self.joining = self._after(self.joining, text, at)

    def _after(self, before: StreamTables, text: str, at: int) -> StreamTables:
        """The tables after the statement, as the driver computes them (worker/ddl/driver.py)."""
        ddl = parse_ddl(text, "d", None)
        assert ddl is not None
        offset = RelayOffset(1, at)
        statement = Statement(offset, offset, offset, SourcePosition("bin.000001", at), "d", text, None)
        if not RoutedScope(before.scope)(statement):
            return before
        changes = StatementChanges(before, self.numbers)
        scene = self._scene(before, statement)
        self._follow_names(ddl, statement, before, changes, scene)
        for action in actions_of(ddl, statement, scene):
            self._act(action, changes)
        changes.detach_renamed()
        after = changes.apply()
        assert after.violations(before.tracks) == (), text
        return after

    def _follow_names(
        self, ddl: Ddl, statement: Statement, before: StreamTables, changes: StatementChanges, scene: DdlContext
    ) -> None:
        scope = before.scope

        def owned(name: TableName) -> TableName | None:
            at = scope.owned_name(*name)
            return at if scope.only is not None else name if at is None else None

        given = given_names(ddl, owned, lambda name: True)
        if not before.is_main:
            changes.names = NameChanges(given)
            return
        dropped = {item.number for item in before.partitioning.away if item.dropped}
        left = left_to_others(ddl, before.names_elsewhere, dropped, RULES, lambda name: scene.find(name) is not None)
        changes.names = NameChanges(given, dropped=dropped_elsewhere(ddl, before.names_elsewhere))
        if left is not None:
            changes.leave_table(left[0], StatementPlace.of(statement), left[1])

    def _scene(self, tables: StreamTables, statement: Statement) -> DdlContext:
        def reserved() -> int | None:
            numbers = frozenset((*self.joining.plans, *self.joining.dropped.values()))
            return reserved_number(StatementPlace.of(statement), self.main.partitioning.away, numbers)

        shards = {name_of(plan): ShardTarget(plan, 1) for plan in tables.plans.values()}
        return DdlContext("t", "s", shards, lambda _, __: True, lambda _, __: False, tables.scope, reserved)

    @staticmethod
    def _act(action: Alter | Create | Drop | Rename | object, changes: StatementChanges) -> None:
        match action:
            case Drop(shard=shard):
                changes.remove(shard.number)
            case Create(name=name, replaces=replaced, number=number):
                if replaced is not None:
                    changes.remove(replaced.number)
                changes.change(plan_of(changes.take_number() if number is None else number, name[1]), NOTHING)
            case Rename(moves=moves):
                for shard, name in moves:
                    table = replace(shard.plan.table, schema=name[0], name=name[1])
                    changes.change(replace(shard.plan, table=table), NOTHING)
            case _:
                raise AssertionError(action)


def _statement(chance: random.Random, exist: Sequence[str], free: Sequence[str]) -> tuple[str, set[str]]:
    """A statement that a source with these tables accepts, and its tables after it."""
    tables = set(exist)
    kind = chance.random()
    if kind < 0.4 and tables:
        old = chance.sample(sorted(tables), min(chance.randint(1, 3), len(tables)))
        new = chance.sample([*free, *old], len(old))
        pairs = [(name, f"tmp{number}") for number, name in enumerate(old)]
        pairs += [(f"tmp{number}", name) for number, name in enumerate(new)]
        text = "RENAME TABLE " + ", ".join(f"{one} TO {other}" for one, other in pairs)
        return text, tables.difference(old).union(new)
    if kind < 0.6 and tables:
        dropped = chance.sample(sorted(tables), min(chance.randint(1, 2), len(tables)))
        return f"DROP TABLE {', '.join(dropped)}", tables.difference(dropped)
    name = chance.choice([*free, *exist])
    if name in tables:
        manner = chance.choice(("CREATE OR REPLACE TABLE", "CREATE TABLE IF NOT EXISTS"))
    else:
        manner = chance.choice(("CREATE OR REPLACE TABLE", "CREATE TABLE IF NOT EXISTS", "CREATE TABLE"))
    others = sorted(tables - {name})
    like = f" LIKE {chance.choice(others)}" if others and chance.random() < 0.5 else " (a INT)"
    return f"{manner} {name}{like}", tables | {name}


@pytest.mark.parametrize("seed", range(100))
def test_each_table_is_in_one_stream(seed: int) -> None:
    chance, streams = random.Random(seed), Streams()
    exist, names = {f"t{number}" for number in range(4)}, [f"t{number}" for number in range(7)]
    done: list[str] = []
    for at in range(1, 30):
        text, exist = _statement(chance, sorted(exist), [name for name in names if name not in exist])
        done.append(text)
        streams.execute(text, at)
        of_main = [name_of(plan)[1] for plan in streams.main.plans.values()]
        of_joining = [name_of(plan)[1] for plan in streams.joining.plans.values()]
        assert sorted((*of_main, *of_joining)) == sorted(exist), done
        for name in of_joining:
            assert not streams.main.scope.holds("d", name), done
        for name in of_main:
            assert not streams.joining.scope.holds("d", name), done
    merged = streams.main.with_joined(streams.joining)
    assert merged.violations(streams.main.tracks) == (), done
    assert sorted(name_of(plan)[1] for plan in merged.plans.values()) == sorted(exist), done
    assert not any(isinstance(track, Leaving) for track in merged.tracks.values())
