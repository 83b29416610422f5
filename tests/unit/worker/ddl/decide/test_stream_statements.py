"""Which statements concern a stream that tables enter at later places: as if its scope there were built."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto import config_pb2
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.ddl.decide.routed_statements import RoutedScope
from shardmerge.worker.ddl.decide.stream_statements import StreamStatements
from shardmerge.worker.ddl.decide.stream_tables import StreamTables
from shardmerge.worker.ddl.decide.track import Entering
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.table_scope import TableName, TableScope
from shardmerge.worker.target.records.ddl_progress import StatementPlace
from shardmerge.worker.target.records.partitioning import Partitioning
from tests.support.plans import integer, table_plan

RULES = Rules.from_config(
    config_pb2.SubTaskConfig(
        task="t",
        source_id="mysql-01",
        online_ddl=config_pb2.OnlineDdl(shadow_tables=["^_(.+)_gho$"], trash_tables=["^_(.+)_del$"]),
    )
)
NAMES = ["a", "b", "c", "d", "A", "_a_gho", "_B_gho", "_c_del"]
STATEMENTS = [
    "ALTER TABLE {0} ADD x INT",
    "DROP TABLE {0}, {1}",
    "TRUNCATE {0}",
    "RENAME TABLE {0} TO {1}",
    "CREATE TABLE {0} LIKE {1}",
    "DROP DATABASE s",
    "DROP DATABASE u",
    "CALL p()",
    "INSERT INTO {0} VALUES (1)",
]


def place(group: int) -> RelayOffset:
    return RelayOffset(1, 10 * group)


def timed(number: int, name: str, at: int) -> Entering:
    plan = table_plan((integer(),), (0,), shard=number, schema="s", name=name)
    return Entering(plan, place(at), StatementPlace.of(statement_at(at, "ALTER TABLE s.x ADD y INT")))


def statement_at(group: int, text: str) -> Statement:
    return Statement(place(group), place(group), place(group + 1), SourcePosition("bin.000001", 4), "s", text, None)


def stream(begins: list[str], arriving: dict[str, int]) -> StreamTables:
    only: frozenset[TableName] = frozenset(("s", name) for name in begins)
    entering = {number: timed(number, name, at) for number, (name, at) in enumerate(arriving.items())}
    return StreamTables((), entering, Partitioning(2, frozenset(), frozenset(), "{}"), TableScope(RULES, only=only))


def as_if_there(tables: StreamTables, statement: Statement) -> bool:
    scope = replace(tables.at_barrier(statement.offset).scope, rules=RULES)
    return RoutedScope(scope, with_shadow_tables=True)(statement)


@given(
    st.lists(st.sampled_from(NAMES), max_size=2, unique=True),
    st.dictionaries(st.sampled_from(NAMES), st.integers(0, 4), max_size=5),
    st.sampled_from(STATEMENTS),
    st.sampled_from(NAMES),
    st.sampled_from(NAMES),
    st.integers(0, 5),
)
def test_a_statement_concerns_the_tables_that_have_entered(
    begins: list[str], arriving: dict[str, int], text: str, one: str, two: str, at: int
) -> None:
    tables = stream(begins, {name: group for name, group in arriving.items() if name not in begins})
    statement = statement_at(at, text.format(one, two))
    assert StreamStatements(tables, RULES)(statement) is as_if_there(tables, statement)


def test_a_table_enters_after_its_own_statement() -> None:
    tables = stream([], {"a": 3})
    concerns = StreamStatements(tables, RULES)
    assert [concerns(statement_at(at, "ALTER TABLE a ADD x INT")) for at in (2, 3, 4)] == [False, True, True]
    assert not concerns(statement_at(4, "ALTER TABLE b ADD x INT"))
    assert concerns(statement_at(4, "CREATE TABLE b LIKE a"))


def test_the_main_stream_has_all_tables_but_those_of_other_streams() -> None:
    scope = TableScope(RULES, others=frozenset({("s", "b")}))
    tables = StreamTables((), {}, Partitioning(2, frozenset(), frozenset(), "{}"), scope)
    concerns = StreamStatements(tables, RULES)
    assert concerns(statement_at(1, "ALTER TABLE a ADD x INT"))
    assert not concerns(statement_at(1, "ALTER TABLE b ADD x INT"))
