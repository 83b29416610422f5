"""Which stream has a name that a statement gives to a table."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from shardmerge.proto import config_pb2, errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.table_numbers import TableNumbers
from shardmerge.worker.ddl.decide.actions import Create, DdlContext, Drop, Rename, ShardTarget, actions_of
from shardmerge.worker.ddl.decide.given_names import (
    GivenNames,
    creates_here,
    dropped_elsewhere,
    given_names,
    left_to_others,
    renames_of,
    reserved_number,
)
from shardmerge.worker.ddl.decide.routed_statements import RoutedScope
from shardmerge.worker.ddl.decide.statement_changes import NameChanges, StatementChanges
from shardmerge.worker.ddl.decide.stream_tables import StreamTables
from shardmerge.worker.ddl.decide.track import Elsewhere
from shardmerge.worker.ddl.sql.statement import CreateTable, Ddl, parse_ddl
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.replicate.join.stream_state import excluded_tables, known_away_names
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.table_scope import TableName, TableScope
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.partitioning import AwayName, Partitioning
from tests.support.plans import integer, table_plan

RULES = Rules.from_config(
    config_pb2.SubTaskConfig(
        task="t",
        meta_schema="dm_meta",
        case_sensitive=True,
        block_allow_list=config_pb2.BlockAllowList(name="b", do_dbs=["d"]),
        online_ddl=config_pb2.OnlineDdl(shadow_tables=["^_(.+)_gho$"], trash_tables=["^_(.+)_del$"]),
    )
)
EVERYTHING = TableScope(RULES)


def ddl_of(text: str) -> Ddl:
    found = parse_ddl(text, "d", None)
    assert found is not None
    return found


def statement_of(text: str, at: int = 4) -> Statement:
    begin = RelayOffset(1, at)
    return Statement(begin, begin, begin, SourcePosition("bin.000001", at), "d", text, None)


def names_of(*names: str) -> frozenset[TableName]:
    return frozenset(("d", name) for name in names)


def given(text: str, *others: str) -> GivenNames:
    """The change of the names of other streams."""
    scope = replace(EVERYTHING, others=names_of(*others))
    return given_names(
        ddl_of(text),
        lambda name: name if scope.owned_name(*name) is None else None,
        lambda name: RULES.route(*name) is not None,
    )


@pytest.mark.parametrize(
    ("text", "others", "after"),
    [
        ("RENAME TABLE a TO x", "a", "x"),
        ("RENAME TABLE b TO x", "a", "a"),
        ("RENAME TABLE a TO x, b TO a", "a", "x"),
        ("RENAME TABLE a TO x, b TO y", "a c", "x c"),
        ("RENAME TABLE a TO tmp, b TO a, tmp TO b", "a", "b"),
        ("RENAME TABLE a TO tmp, b TO a, tmp TO b", "a b", "a b"),
        ("RENAME TABLE a TO x, x TO y, y TO a", "a", "a"),
        ("RENAME TABLE a TO e.x", "a", "a"),  # the rules do not let it through: its stream stops there
        ("RENAME TABLE a TO e.x, b TO a", "a", ""),
        ("ALTER TABLE a ADD n INT, RENAME TO x, RENAME y", "a", "y"),
        ("ALTER TABLE a ADD n INT", "a", "a"),
        ("RENAME TABLE a TO _a_del, _a_gho TO a", "a", "a"),
        ("RENAME TABLE b TO _b_del, _b_gho TO b", "a", "a"),
        ("DROP TABLE a", "a", "a"),
    ],
)
def test_a_name_goes_with_its_table(text: str, others: str, after: str) -> None:
    assert given(text, *others.split()).apply(names_of(*others.split())) == names_of(*after.split())


def test_names_of_a_server_with_lower_case_names() -> None:
    scope = replace(EVERYTHING, others=names_of("a"))
    assert scope.owned_name("D", "A") is None
    assert scope.owned_name("d", "_A_gho") is None
    own = replace(EVERYTHING, only=names_of("a"))
    assert own.owned_name("D", "A") == ("d", "a")
    assert own.owned_name("d", "_a_gho") == ("d", "_a_gho")
    assert own.owned_name("d", "b") is None


@pytest.mark.parametrize(
    ("text", "others", "left"),
    [
        ("CREATE TABLE n LIKE a", "a", (("d", "n"), 0)),
        ("CREATE TABLE IF NOT EXISTS n LIKE a", "a", (("d", "n"), 0)),
        ("CREATE TABLE IF NOT EXISTS own LIKE a", "a", None),
        ("CREATE OR REPLACE TABLE own LIKE a", "a", (("d", "own"), 0)),
        ("CREATE TABLE n LIKE own", "a", None),
        ("CREATE TABLE e.n LIKE a", "a", None),
        ("CREATE TABLE n (a INT)", "a", None),
        ("CREATE TABLE a (a INT)", "a", (("d", "a"), 0)),  # its stream has dropped it before
        ("CREATE TABLE IF NOT EXISTS a (a INT)", "a", None),
        ("CREATE TABLE a LIKE own", "a", (("d", "a"), 0)),
        ("DROP TABLE a", "a", None),
    ],
)
def test_a_new_table_belongs_to_the_stream_of_the_table_that_it_is_like(
    text: str, others: str, left: tuple[TableName, int] | None
) -> None:
    away = {name: number for number, name in enumerate(sorted(names_of(*others.split())))}
    assert left_to_others(ddl_of(text), away, (), RULES, lambda name: name == ("d", "own")) == left


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("DROP TABLE a", "a"),
        ("DROP TABLE IF EXISTS own, A, c", "a c"),
        ("DROP TABLE e.a", ""),
        ("DROP DATABASE d", "a c"),
        ("DROP DATABASE e", ""),
        ("TRUNCATE TABLE a", ""),
    ],
)
def test_a_table_of_another_stream_is_dropped(text: str, names: str) -> None:
    away = {("d", "a"): 3, ("d", "c"): 4}
    assert dropped_elsewhere(ddl_of(text), away) == names_of(*names.split())


@pytest.mark.parametrize(("dropped", "left"), [((), None), ((4,), None), ((3,), (("d", "a"), 3))])
def test_if_not_exists_after_a_drop(dropped: tuple[int, ...], left: tuple[TableName, int] | None) -> None:
    away, ddl = {("d", "a"): 3, ("d", "c"): 4}, ddl_of("CREATE TABLE IF NOT EXISTS a (a INT)")
    assert left_to_others(ddl, away, dropped, RULES, lambda _: False) == left


def test_one_stream_creates_a_table() -> None:
    main, joining = replace(EVERYTHING, others=names_of("a")), replace(EVERYTHING, only=names_of("a"))
    for text, in_main, in_joining in (
        ("CREATE TABLE n LIKE a", False, True),
        ("CREATE TABLE n LIKE b", True, False),
        ("CREATE TABLE n (a INT)", True, False),
        ("CREATE TABLE a (a INT)", False, True),
        ("CREATE TABLE a LIKE b", False, True),
    ):
        ddl = ddl_of(text)
        assert isinstance(ddl, CreateTable)
        assert (creates_here(ddl, main), creates_here(ddl, joining)) == (in_main, in_joining), text
        assert RoutedScope(main)(statement_of(text)), text
        assert RoutedScope(joining)(statement_of(text)) == in_joining, text


@pytest.mark.parametrize(
    ("text", "stops"),
    [
        ("RENAME TABLE a TO c", True),  # both are names of other streams: the one is free from here on
        ("RENAME TABLE a TO x", True),
        ("RENAME TABLE e.p TO e.q", False),
        ("ALTER TABLE a ADD n INT", False),
        ("DROP TABLE a", True),  # a table that is created under its name afterwards is another one
        ("DROP TABLE e.a", False),
        ("CREATE TABLE e.n LIKE a", False),
    ],
)
def test_the_main_stream_stops_where_names_change(text: str, stops: bool) -> None:
    assert RoutedScope(replace(EVERYTHING, others=names_of("a", "c")))(statement_of(text)) == stops


def test_a_number_is_reserved_for_one_stream() -> None:
    place = StatementPlace(SourcePosition("bin.000001", 4), 10)
    left = (AwayName(3, "d", "x"), AwayName(7, "d", "n", place, 3))
    assert reserved_number(place, left, frozenset({3})) == 7
    assert reserved_number(place, left, frozenset({4})) is None
    assert reserved_number(replace(place, at=11), left, frozenset({3})) is None


SHARDS = {
    ("d", name): ShardTarget(table_plan((integer(),), (0,), shard=number, schema="d", name=name), 1)
    for number, name in enumerate("ab")
}


def scene(scope: TableScope, number: int | None = None) -> DdlContext:
    shards = {name: shard for name, shard in SHARDS.items() if scope.holds(*name)}

    def routed(schema: str, _: str) -> bool:
        return schema == "d"

    return DdlContext("task", "s", shards, routed, lambda _, __: False, scope, lambda: number)


def test_each_stream_has_its_part_of_a_rename() -> None:
    text = "RENAME TABLE a TO tmp, b TO a, tmp TO b"
    main, joining = replace(EVERYTHING, others=names_of("a")), replace(EVERYTHING, only=names_of("a"))
    [of_main] = actions_of(ddl_of(text), statement_of(text), scene(main))
    [of_joining] = actions_of(ddl_of(text), statement_of(text), scene(joining))
    assert isinstance(of_main, Rename)
    assert isinstance(of_joining, Rename)
    assert [(shard.name, name) for shard, name in of_main.moves] == [(("d", "b"), ("d", "a"))]
    assert [(shard.name, name) for shard, name in of_joining.moves] == [(("d", "a"), ("d", "b"))]
    for stranger in ("RENAME TABLE e.p TO x", "RENAME TABLE a TO y, e.p TO a, a TO x"):
        with pytest.raises(ShardmergeError) as caught:
            actions_of(ddl_of(stranger), statement_of(stranger), scene(main))
        assert caught.value.spec is errors.ddl.RENAME_LEAVES
        assert not any(
            isinstance(action, Create)
            for action in actions_of(ddl_of(stranger), statement_of(stranger), scene(joining))
        )


def test_a_replaced_table_is_dropped_where_it_is() -> None:
    text = "CREATE OR REPLACE TABLE b LIKE a"
    main, joining = replace(EVERYTHING, others=names_of("a")), replace(EVERYTHING, only=names_of("a"))
    assert actions_of(ddl_of(text), statement_of(text), scene(main)) == (Drop(SHARDS["d", "b"]),)
    [made] = actions_of(ddl_of(text), statement_of(text), scene(joining, 9))
    assert isinstance(made, Create)
    assert made.number == 9
    assert actions_of(ddl_of(text), statement_of(text), scene(joining)) == (), "the main stream has not left it"


class _Streams:
    """The main stream and one of away tables execute the same statements, the latter later."""

    def __init__(self) -> None:
        plans = {
            number: table_plan((integer(),), (0,), shard=number, schema="d", name=f"t{number}") for number in range(4)
        }
        tables = tuple(plan.table for plan in plans.values())
        self.numbers = TableNumbers(4)
        dealing = Partitioning(1, frozenset(), frozenset(), "{}")
        elsewhere = {2: Elsewhere(("d", "t2")), 3: Elsewhere(("d", "t3"))}
        scope = TableScope(RULES, names_of("t2", "t3"))
        self.main = StreamTables(tables, elsewhere, dealing, scope)
        self.is_away = {f"t{number}": number > 1 for number in range(4)}

    def execute(self, text: str, at: int) -> None:
        ddl, before = ddl_of(text), self.main
        changes = StatementChanges(before, self.numbers)
        if not RoutedScope(before.scope)(statement_of(text)):
            return
        given = given_names(
            ddl,
            lambda name: name if before.scope.owned_name(*name) is None else None,
            lambda name: RULES.route(*name) is not None,
        )
        dropped = {item.number for item in before.partitioning.away if item.dropped}
        left = left_to_others(ddl, before.names_elsewhere, dropped, RULES, lambda name: False)
        changes.names = NameChanges(given, dropped=dropped_elsewhere(ddl, before.names_elsewhere))
        if left is not None:
            changes.leave_table(left[0], StatementPlace(SourcePosition("bin.000001", at), 0), left[1])
        self.main = changes.apply()
        assert self.main.violations(before.tracks) == ()


@pytest.mark.parametrize("seed", range(100))
def test_the_names_are_the_same_after_a_restart(seed: int) -> None:
    """A restart computes the names of other streams from the records, wherever these streams are."""
    chance, streams = random.Random(seed), _Streams()
    is_away = streams.is_away
    free = ["x", "y", "z", "u", "v", "w"]
    for at in range(20):
        kind = chance.random()
        if kind < 0.6 or not free:
            old = chance.sample(sorted(is_away), min(chance.randint(1, 3), len(is_away)))
            new = chance.sample(free + old, len(old))
            pairs = [(one, f"tmp{number}") for number, one in enumerate(old)]
            pairs += [(f"tmp{number}", one) for number, one in enumerate(new)]
            text = "RENAME TABLE " + ", ".join(f"{one} TO {two}" for one, two in pairs)
            moved = dict(zip(new, [is_away[one] for one in old], strict=True))
            after = {name: way for name, way in is_away.items() if name not in old} | moved
        else:
            like, name = chance.choice(sorted(is_away)), chance.choice(free)
            text = f"CREATE TABLE {name} LIKE {like}" if kind < 0.9 else f"CREATE TABLE {name} (a INT)"
            after = is_away | {name: is_away[like] and kind < 0.9}
        assert len(renames_of(ddl_of(text))) in (0, 2, 4, 6)
        streams.execute(text, at)
        free = [name for name in [*free, *is_away] if name not in after]
        is_away.clear()
        is_away.update(after)
        main = streams.main
        wanted = names_of(*(name for name, way in is_away.items() if way))
        assert main.scope.others == wanted == frozenset(main.names_elsewhere), text
        recorded = known_away_names(main.partitioning, None, [2, 3])
        assert recorded == main.partitioning.away
        assert excluded_tables(main.tables, None, [2, 3], recorded) == dict(main.names_elsewhere)


def test_a_name_is_free_until_a_table_gets_it() -> None:
    streams = _Streams()

    def dropped() -> set[tuple[str, str, int]]:
        return {(item.schema, item.table, item.number) for item in streams.main.partitioning.away if item.dropped}

    streams.execute("CREATE TABLE IF NOT EXISTS t2 (a INT)", 1)
    assert not streams.main.partitioning.away, "it exists"
    streams.execute("DROP TABLE t2, t3", 2)
    assert dropped() == {("d", "t2", 2), ("d", "t3", 3)}
    streams.execute("CREATE TABLE IF NOT EXISTS t2 (a INT)", 3)
    assert dropped() == {("d", "t3", 3)}
    assert streams.main.names_elsewhere == {("d", "t2"): 4, ("d", "t3"): 3}
    streams.execute("RENAME TABLE t2 TO t3", 4)
    assert dropped() == set()
    assert streams.main.names_elsewhere == {("d", "t3"): 4}
    streams.execute("DROP TABLE t3", 5)
    streams.execute("RENAME TABLE _t3_gho TO t3", 6)
    assert dropped() == set(), "a tool's table has taken the name"
