"""What a sharding DDL makes of the target under the optimistic mode, beyond the join itself."""

from __future__ import annotations

import pytest

from tests.unit.ddl.join_model import shape_of
from worker.ddl.described import Shape
from worker.ddl.optimistic import Join, joined_target, renamed_of, replaced_of
from worker.ddl.shape import Changing
from worker.ddl.shards import NotJoinable, Shard
from worker.ddl.statement import parse_ddl

ONE, TWO = ("s1", 0), ("s2", 0)


def table(*items: str) -> Shape:
    return shape_of("`id` bigint NOT NULL", *items, "PRIMARY KEY (`id`)")


def ddl(text: str) -> Changing:
    found = parse_ddl(f"ALTER TABLE d.t {text}", "d", 0)
    assert isinstance(found, Changing)
    return found


N, C = "`n` int DEFAULT NULL", "`c` int DEFAULT NULL"
PLAIN, UNIQUE = "KEY `by_n` (`n`)", "UNIQUE KEY `by_n` (`n`)"


def test_what_is_gone_from_the_target_goes_from_every_record() -> None:
    target = table(N, C)
    others = {TWO: Shard("two", table(N), frozenset({"c", "n"}))}
    answer = joined_target(target, others, ONE, Shard("one", table(N, C)), table(N), ddl("DROP COLUMN c"), strict=True)
    assert answer == Join(("DROP COLUMN `c`",), {TWO: frozenset({"n"}), ONE: frozenset()})


@pytest.mark.parametrize("before", [(N,), (N, PLAIN)])
def test_a_unique_index_waits_for_every_shard_table(before: tuple[str, ...]) -> None:
    others = {TWO: Shard("two", table(N))}
    answer = joined_target(
        table(N), others, ONE, Shard("one", table(*before)), table(N, UNIQUE), ddl("ADD UNIQUE by_n (n)"), strict=True
    )
    assert isinstance(answer, NotJoinable)
    assert (answer.subject, answer.waits) == ("by_n", True)


def test_a_unique_index_that_another_has_already_is_the_operators_to_decide() -> None:
    others = {TWO: Shard("two", table(N, UNIQUE))}
    answer = joined_target(
        table(N), others, ONE, Shard("one", table(N)), table(N, UNIQUE), ddl("ADD UNIQUE by_n (n)"), strict=True
    )
    assert isinstance(answer, NotJoinable)
    assert (answer.subject, answer.other, answer.waits) == ("by_n", "two", False)


def test_an_index_that_is_not_unique_does_not_wait() -> None:
    answer = joined_target(
        table(N), {}, ONE, Shard("one", table(N)), table(N, PLAIN), ddl("ADD INDEX by_n (n)"), strict=True
    )
    assert isinstance(answer, Join) and answer.clauses


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
def test_what_structures_do_not_tell(text: str, renamed: dict[str, str], replaced: set[str]) -> None:
    assert renamed_of(ddl(text)) == renamed
    assert replaced_of(ddl(text)) == replaced
