"""Names of shadow and trash tables of tools for online schema changes."""

from __future__ import annotations

import pickle

import pytest

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto import errors
from shardmerge.proto.config.defaults import SHADOW_TABLES, TRASH_TABLES
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.online_ddl_names import OnlineNames
from shardmerge.worker.rules.table_scope import TableScope

ONLINE = pb.OnlineDdl(shadow_tables=SHADOW_TABLES, trash_tables=TRASH_TABLES)


@pytest.mark.parametrize(
    ("table", "shadow", "trash"),
    [
        ("_t_gho", "t", ""),
        ("_t_new", "t", ""),
        ("__t_new", "_t", ""),
        ("_a_b_new", "a_b", ""),
        ("_t_ghc", "", "t"),
        ("_t_del", "", "t"),
        ("_t_20260101000000_del", "", "t_20260101000000"),
        ("_t_old", "", "t"),
        ("t_gho", "", ""),
        ("_t_gho2", "", ""),
        ("__gho", "", ""),
        ("_T_GHO", "", ""),
        ("t", "", ""),
    ],
)
def test_names_as_of_the_tools(table: str, shadow: str, trash: str) -> None:
    names: OnlineNames = pickle.loads(pickle.dumps(OnlineNames.from_config("task", ONLINE)))
    assert names.is_on
    assert (names.shadow_of(table), names.trash_of(table)) == (shadow, trash)
    assert names.own(table) == shadow or trash


def test_without_rules_no_table_is_one() -> None:
    names = OnlineNames.from_config("task", pb.OnlineDdl())
    assert not names.is_on
    assert names.own("_t_gho") == ""


def test_an_empty_group_is_no_name() -> None:
    names = OnlineNames.from_config("task", pb.OnlineDdl(shadow_tables=["^(t)?_gho$"]))
    assert names.shadow_of("_gho") == ""
    assert names.shadow_of("t_gho") == "t"
    names = OnlineNames.from_config("task", pb.OnlineDdl(trash_tables=["^(t?)_gho$", "^(.*)_gho$", "^_(.+)$"]))
    assert names.trash_of("_gho") == "gho"


def test_a_rule_that_is_no_expression() -> None:
    with pytest.raises(ShardmergeError) as caught:
        OnlineNames.from_config("task", pb.OnlineDdl(trash_tables=["("]))
    assert caught.value.spec is errors.config.PATTERN


def test_they_take_no_part_but_their_statements_concern_the_owner_of_the_table() -> None:
    config = pb.SubTaskConfig(task="task", source_id="s", meta_schema="dm_meta", online_ddl=ONLINE)
    config.block_allow_list.do_dbs.append("d")
    rules = Rules.from_config(config)
    assert rules.route("d", "t") is not None
    assert rules.route("d", "_t_gho") is None
    assert rules.route("d", "_t_del") is None
    scope = TableScope(rules)
    assert not scope.holds("d", "_t_gho")
    assert scope.concerns("d", "_t_gho") and scope.concerns("d", "_t_del") and scope.concerns("d", "t")
    assert not scope.concerns("e", "_t_gho")
    others = TableScope(rules, others=frozenset({("d", "t")}))
    assert not others.concerns("d", "_t_gho") and others.concerns("d", "_u_gho")
    only = TableScope(rules, only=frozenset({("d", "t")}))
    assert only.concerns("d", "_t_gho") and not only.concerns("d", "_u_gho")
    config.ClearField("online_ddl")
    assert Rules.from_config(config).route("d", "_t_gho") is not None
