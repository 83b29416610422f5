"""Routes that contradict each other: found where the patterns prove it, by an example that both match."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto.config.rules.block_allow import BlockAllowRules
from shardmerge.proto.config.rules.overlap import overlaps
from shardmerge.proto.config.rules.rule_model import Route
from shardmerge.proto.config.task.task_file import parse_task
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.rules.router import Router
from tests.unit.proto.config.samples import TASK


def route(schema: str, table: str, target: str) -> Route:
    return Route.model_validate(
        {"schema-pattern": schema, "table-pattern": table, "target-schema": "x", "target-table": target}
    )


def found(
    one: tuple[str, str], two: tuple[str, str], lists: BlockAllowRules | None = None, same: bool = False
) -> list[tuple[str, str]]:
    routes = {"one": route(*one, "a"), "two": route(*two, "a" if same else "b")}
    return [(each.schema, each.table) for each in overlaps(routes, lists or BlockAllowRules(), case_sensitive=False)]


@pytest.mark.parametrize(
    ("one", "two", "example"),
    [
        (("a_*", "t_1"), ("a_1", "t_*"), ("a_1", "t_1")),
        (("a_*", "t_[0-5]"), ("a_*", "t_[5-9]"), ("a_", "t_5")),
        (("~^a_\\d+$", "t"), ("~^a_", "t"), ("a_1", "t")),
        (("a_*", "~^t_\\d+$"), ("a_*", "t_*"), ("a_", "t_1")),
        (("?_x", "t"), ("b*", "t"), None),
        (("s", ""), ("~s", ""), None),
        (("s_*", "t_*"), ("s_*", ""), None),
        (("s_*", "t_*"), ("s_1*", "t_*"), None),
        (("s_*", "t_a*"), ("s_*", "t_b*"), None),
        (("s_a", "t_*"), ("s_b", "t_*"), None),
        (("s_[a-c]", "t"), ("s_[d-f]", "t"), None),
    ],
)
def test_pairs(one: tuple[str, str], two: tuple[str, str], example: tuple[str, str] | None) -> None:
    assert found(one, two) == found(two, one) == ([example] if example else [])
    assert found(one, two, same=True) == []


def test_a_table_that_is_kept_out_is_no_example() -> None:
    lists = BlockAllowRules.from_config("t", pb.BlockAllowList(do_dbs=["b_*"]), case_sensitive=False)
    assert found(("a_*", "t_1"), ("a_1", "t_*"), lists) == []


def test_a_more_specific_third_rule_settles_it() -> None:
    routes = {
        "one": route("a_*", "t_1", "a"),
        "two": route("a_1", "t_*", "b"),
        "three": route("a_1", "t_1", "c"),
    }
    assert list(overlaps(routes, BlockAllowRules(), case_sensitive=True)) == []


def test_the_finding_names_both_rules_and_an_example() -> None:
    text = TASK.replace("table-pattern: t_*\n    target-schema: s\n", "table-pattern: t_1\n    target-schema: s\n", 1)
    text = text.replace(
        "    schema-pattern: s_*\n    target-schema: s\n",
        "    schema-pattern: s_1\n    table-pattern: t_*\n    target-schema: s\n",
        1,
    )
    with pytest.raises(ShardmergeError) as caught:
        parse_task(text, "task.yaml", {})
    assert (
        "routes.r2: contradicts route r1 of line 23: neither is more specific, and s_1.t_1 of" in caught.value.message
    )


PART = st.text(alphabet="ab1_?", max_size=3)
PATTERN = st.one_of(
    st.tuples(PART, st.sampled_from(["*", "", "[ab]", "[!a]", "[a-b]*"])).map("".join).filter(bool),
    st.sampled_from(["~a", "~^a.*b$", r"~_\d+$", "~(a|b)"]),
)


@given(PATTERN, PATTERN, PATTERN, PATTERN, st.booleans())
def test_what_is_found_is_what_the_router_refuses(s1: str, t1: str, s2: str, t2: str, case_sensitive: bool) -> None:
    routes = {"one": route(s1, t1, "a"), "two": route(s2, t2, "b")}
    router = Router.from_config(
        pb.SubTaskConfig(case_sensitive=case_sensitive, routes=[each.to_proto(name) for name, each in routes.items()])
    )
    for each in overlaps(routes, BlockAllowRules(), case_sensitive=case_sensitive):
        with pytest.raises(ShardmergeError):
            router.route(each.schema, each.table)


WILD = st.text(alphabet="ab?", max_size=3).flatmap(
    lambda stem: st.sampled_from([stem + "*", stem + "[ab]", stem or "a"])
)


@given(WILD, WILD, st.text(alphabet="ab", max_size=5))
def test_wildcards_that_share_a_name_are_always_found(one: str, two: str, name: str) -> None:
    from shardmerge.proto.config.rules.pattern import compile_pattern

    both = [compile_pattern(text, True) for text in (one, two)]
    if not name or not all(each.matches(name) for each in both):
        return
    if both[0].more_specific_than(both[1]) or both[1].more_specific_than(both[0]):
        return
    assert list(
        overlaps({"one": route(one, "t", "a"), "two": route(two, "t", "b")}, BlockAllowRules(), case_sensitive=True)
    )
