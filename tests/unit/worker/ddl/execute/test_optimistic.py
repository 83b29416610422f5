"""What a sharding DDL makes of the target under the optimistic mode, beyond the join itself."""

from __future__ import annotations

import pytest

from shardmerge.worker.ddl.execute.optimistic import TargetJoin, compute_join, renamed_of, replaced_of
from shardmerge.worker.ddl.schema_join.model import NotJoinable, ShardSchema
from shardmerge.worker.ddl.sql.statement import parse_ddl
from shardmerge.worker.ddl.sql.table_definition import TableDefinition
from shardmerge.worker.ddl.sql.target_statement import Changing
from tests.unit.worker.ddl.schema_join.join_model import shape_of

ONE, TWO = ("s1", 0), ("s2", 0)


def table(*items: str) -> TableDefinition:
    return shape_of("`id` bigint NOT NULL", *items, "PRIMARY KEY (`id`)")


def ddl(text: str) -> Changing:
    found = parse_ddl(f"ALTER TABLE d.t {text}", "d", 0)
    assert isinstance(found, Changing)
    return found


N, C = "`n` int DEFAULT NULL", "`c` int DEFAULT NULL"
PLAIN, UNIQUE = "KEY `by_n` (`n`)", "UNIQUE KEY `by_n` (`n`)"


def test_a_column_gone_from_the_target_is_removed_from_every_record() -> None:
    target = table(N, C)
    others = {TWO: ShardSchema("two", table(N), frozenset({"c", "n"}))}
    answer = compute_join(
        target, others, ONE, ShardSchema("one", table(N, C)), table(N), ddl("DROP COLUMN c"), strict=True
    )
    assert answer == TargetJoin(("DROP COLUMN `c`",), {TWO: frozenset({"n"}), ONE: frozenset()})


@pytest.mark.parametrize("before", [(N,), (N, PLAIN)])
def test_a_unique_index_waits_for_every_shard_table(before: tuple[str, ...]) -> None:
    others = {TWO: ShardSchema("two", table(N))}
    answer = compute_join(
        table(N),
        others,
        ONE,
        ShardSchema("one", table(*before)),
        table(N, UNIQUE),
        ddl("ADD UNIQUE by_n (n)"),
        strict=True,
    )
    assert isinstance(answer, NotJoinable)
    assert (answer.subject, answer.waits) == ("by_n", True)


def test_a_unique_index_that_another_has_already_is_the_operators_to_decide() -> None:
    others = {TWO: ShardSchema("two", table(N, UNIQUE))}
    answer = compute_join(
        table(N), others, ONE, ShardSchema("one", table(N)), table(N, UNIQUE), ddl("ADD UNIQUE by_n (n)"), strict=True
    )
    assert isinstance(answer, NotJoinable)
    assert (answer.subject, answer.other, answer.waits) == ("by_n", "two", False)


def _adds_unique(*others: ShardSchema, coming: tuple[ShardSchema, ...] = ()) -> TargetJoin | NotJoinable:
    return compute_join(
        table(N),
        {("s2", at): other for at, other in enumerate(others)},
        ONE,
        ShardSchema("one", table(N)),
        table(N, UNIQUE),
        ddl("ADD UNIQUE by_n (n)"),
        strict=True,
        coming=coming,
    )


ADDED = TargetJoin(("ADD UNIQUE KEY `by_n` (`n`)",), {ONE: frozenset()})
TWO_HAS, THREE_HAS = ShardSchema("two", table(N, UNIQUE), one_lane=True), ShardSchema("three", table(N, UNIQUE))
THREE_LACKS = ShardSchema("three", table(N), one_lane=True)


def test_a_unique_index_that_all_others_have_in_one_lane_is_added_at_once() -> None:
    assert _adds_unique(TWO_HAS) == ADDED
    answer = _adds_unique(TWO_HAS, THREE_HAS)
    assert isinstance(answer, NotJoinable)
    assert (answer.other, answer.waits) == ("three", False)


def test_a_unique_index_is_added_at_once_for_tables_that_are_parked_where_they_add_it() -> None:
    assert _adds_unique(TWO_HAS, THREE_LACKS, coming=(THREE_HAS,)) == ADDED
    answer = _adds_unique(THREE_LACKS, coming=(THREE_HAS,))
    assert isinstance(answer, NotJoinable), "none has it: that is a lock's statement"
    assert answer.waits


@pytest.mark.parametrize("items", [(N,), (N, C, "UNIQUE KEY `by_n` (`c`)")], ids=["none", "another one"])
def test_no_lock_adds_a_unique_index_that_a_shard_table_has_and_may_drop(items: tuple[str, ...]) -> None:
    answer = _adds_unique(TWO_HAS, ShardSchema("three", table(*items), one_lane=True))
    assert isinstance(answer, NotJoinable)
    assert (answer.subject, answer.waits) == ("by_n", False)


def test_a_non_unique_index_is_added_at_once() -> None:
    answer = compute_join(
        table(N), {}, ONE, ShardSchema("one", table(N)), table(N, PLAIN), ddl("ADD INDEX by_n (n)"), strict=True
    )
    assert isinstance(answer, TargetJoin) and answer.clauses


@pytest.mark.parametrize(
    ("text", "renamed", "replaced"),
    [
        ("RENAME COLUMN a TO B", {"b": "a"}, set[str]()),
        ("CHANGE A b INT", {"b": "a"}, set[str]()),
        ("CHANGE a A BIGINT", {}, set[str]()),
        ("DROP COLUMN a, ADD COLUMN A DATE", {}, {"a"}),
        ("DROP COLUMN a, ADD COLUMN b INT", {}, set[str]()),
    ],
)
def test_changes_that_structures_do_not_show(text: str, renamed: dict[str, str], replaced: set[str]) -> None:
    assert renamed_of(ddl(text)) == renamed
    assert replaced_of(ddl(text)) == replaced
