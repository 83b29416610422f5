"""What a statement is in the course of an online schema change, by the names in it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.ddl.decide.actions import DdlContext, ShardTarget
from shardmerge.worker.ddl.online.classify import (
    OnlineContext,
    OnlineStep,
    RenamedAway,
    ShadowAltered,
    ShadowCreated,
    ShadowRemoved,
    UnknownShadow,
    classify,
    with_renamed_away,
)
from shardmerge.worker.ddl.sql.statement import AlterTable, Ddl, DropTables, RenameTables, TruncateTable, parse_ddl
from shardmerge.worker.rules.online_ddl_names import OnlineNames, _compiled  # pyright: ignore[reportPrivateUsage]
from shardmerge.worker.rules.table_scope import TableName
from shardmerge.worker.target.records.shadow_tables import AwayTable, ShadowRecord, ShadowTable
from tests.support.plans import integer, table_plan

SHARDS = {
    ("d", name): ShardTarget(table_plan((integer(),), (0,), shard=number, schema="d", name=name), 1)
    for number, name in enumerate(("t", "u"))
}
NAMES = OnlineNames((_compiled("", "", "^_(.+)_(?:new|gho)$"),), (_compiled("", "", "^_(.+)_(?:ghc|del|old)$"),))
SHADOW = ShadowTable(SHARDS["d", "t"].plan.table, CreateStatement("CREATE TABLE t (id INT)", "utf8mb4_bin"))


def course(seen: Mapping[TableName, ShadowRecord]) -> OnlineContext:
    """The rules let all of schema d through but what begins with x; p waits and is another stream's affair."""

    def routed(schema: str, table: str) -> bool:
        return schema == "d" and not table.startswith("x") and not NAMES.own(table)

    scene = DdlContext("task", "mysql-01", SHARDS, routed, lambda _, __: False)
    return OnlineContext(NAMES, seen, lambda schema, table: routed(schema, table) and table != "p", scene)


def step(text: str, seen: Mapping[TableName, ShadowRecord] | None = None) -> tuple[Ddl, OnlineStep]:
    ddl = parse_ddl(text, "d", 0)
    assert ddl is not None
    return ddl, classify(ddl, course(seen or {}))


def said(found: OnlineStep) -> list[str]:
    """The changes and swaps, in words."""
    words: list[str] = []
    for change in found.changes:
        match change:
            case RenamedAway(shard=shard, name=name):
                words.append(f"{shard.name[1]} left as {name[1]}")
            case ShadowCreated() | ShadowAltered() | ShadowRemoved() | UnknownShadow():
                words.append(f"{type(change).__name__} {change.name[1]}")
    return [*words, *(f"{swap.shadow[1]} for {swap.shard.name[1]}" for swap in found.swaps)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("CREATE TABLE _t_gho LIKE t", ["ShadowCreated _t_gho"]),
        ("CREATE TABLE IF NOT EXISTS _t_new (id INT)", ["ShadowCreated _t_new"]),
        ("ALTER TABLE _t_gho ADD x INT", ["ShadowAltered _t_gho"]),
        ("CREATE INDEX i ON _t_gho (id)", ["ShadowAltered _t_gho"]),
        ("DROP INDEX i ON _t_gho", ["ShadowAltered _t_gho"]),
        ("RENAME TABLE t TO _t_del, _t_gho TO t", ["_t_gho for t"]),
        ("RENAME TABLE t TO __t_old, __t_new TO t", ["__t_new for t"]),
        ("RENAME TABLE t TO _x_20260101_del, _t_gho TO t", ["_t_gho for t"]),
        ("RENAME TABLE t TO _t_del, _t_gho TO t, u TO _u_del, _u_gho TO u", ["_t_gho for t", "_u_gho for u"]),
        ("RENAME TABLE t TO xt, xt TO _t_del, _t_gho TO xs, xs TO t", ["_t_gho for t"]),
        ("RENAME TABLE t TO _t_old", ["t left as _t_old"]),
        ("ALTER TABLE t RENAME TO _t_old", ["t left as _t_old"]),
        ("ALTER TABLE t RENAME TO _t_old, ALGORITHM=INPLACE", ["t left as _t_old"]),
        ("ALTER TABLE _t_new RENAME t", ["_t_new for t"]),
        ("ALTER TABLE _t_new ADD x INT, RENAME t", ["ShadowAltered _t_new", "_t_new for t"]),
        ("RENAME TABLE xs TO _t_gho", ["UnknownShadow _t_gho"]),
    ],
)  # fmt: skip
def test_steps(text: str, words: list[str]) -> None:
    _, found = step(text)
    assert said(found) == words
    assert found.rest is None
    assert not found.mixed


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE t ADD x INT",
        "CREATE TABLE v (id INT)",
        "CREATE TABLE _p_gho LIKE p",
        "ALTER TABLE _p_gho ADD x INT",
        "CREATE INDEX i ON t (id)",
        "CREATE TABLE _t_del (id INT)",
        "RENAME TABLE t TO v",
        "RENAME TABLE t TO xt",
        "RENAME TABLE _v_gho TO v",
        "ALTER TABLE t RENAME TO _t_old, ADD x INT",
        "TRUNCATE TABLE _t_gho",
        "RENAME TABLE xs TO xt",
        "CREATE SCHEMA e",
        "RENAME TABLE t TO _t_del, xs TO t",
    ],
)
def test_statements_that_are_no_step(text: str) -> None:
    ddl, found = step(text)
    assert found == OnlineStep(ddl)
    assert found.is_empty


@pytest.mark.parametrize(
    ("text", "mixed"),
    [
        ("RENAME TABLE t TO _t_del, _t_gho TO t, u TO v", "d.u"),
        ("RENAME TABLE t TO _t_del, _t_gho TO t, xs TO v", "d.xs"),
    ],
)
def test_a_statement_that_does_more_than_a_step(text: str, mixed: str) -> None:
    _, found = step(text)
    assert found.mixed == mixed


def test_a_shadow_tables_record_is_removed_with_it() -> None:
    seen: dict[TableName, ShadowRecord] = {("d", "_t_gho"): SHADOW, ("e", "_t_gho"): SHADOW}
    ddl, found = step("DROP TABLE IF EXISTS _t_gho, _u_gho", seen)
    assert isinstance(ddl, DropTables)
    assert (said(found), found.rest) == (["ShadowRemoved _t_gho"], ddl)
    ddl, found = step("DROP DATABASE d", seen)
    assert (said(found), found.rest) == (["ShadowRemoved _t_gho"], ddl)
    assert said(step("CREATE TABLE IF NOT EXISTS _t_gho (id INT)", seen)[1]) == []
    assert said(step("CREATE TABLE _t_gho (id INT)", seen)[1]) == ["ShadowCreated _t_gho"]
    assert said(step("RENAME TABLE _t_gho TO xs", seen)[1]) == ["ShadowRemoved _t_gho"]
    assert said(step("RENAME TABLE _t_gho TO _u_new", seen)[1]) == ["ShadowRemoved _t_gho", "UnknownShadow _u_new"]


def test_a_table_that_was_renamed_away_is_the_same_table() -> None:
    seen: dict[TableName, ShadowRecord] = {("d", "_t_old"): AwayTable(0)}
    ddl, found = step("TRUNCATE TABLE _t_old", seen)
    assert isinstance(ddl, TruncateTable)
    assert found == OnlineStep(ddl)
    at = course(seen)
    assert with_renamed_away(at.ddl_context, at)["d", "_t_old"] is SHARDS["d", "t"]
    assert said(step("RENAME TABLE _t_old TO t", seen)[1]) == ["ShadowRemoved _t_old"]
    assert said(step("RENAME TABLE _t_old TO _t_2_old", seen)[1]) == ["ShadowRemoved _t_old", "t left as _t_2_old"]
    assert said(step("RENAME TABLE _t_new TO t", seen)[1]) == ["_t_new for t"]
    assert said(step("DROP TABLE _t_old", seen)[1]) == ["ShadowRemoved _t_old"]
    assert step("CREATE TABLE t (id INT)", seen)[1].mixed == "d.t"
    ddl, found = step("RENAME TABLE _t_old TO v", seen)
    assert isinstance(ddl, RenameTables)
    assert found == OnlineStep(ddl)


def test_names_as_typed_at_a_server_with_lower_case_names() -> None:
    seen: dict[TableName, ShadowRecord] = {("d", "_t_new"): SHADOW}
    _, found = step("RENAME TABLE T TO _T_old, _T_new TO T", seen)
    assert said(found) == ["_T_new for t"] or said(found) == ["_t_new for t"]
    ddl, found = step("ALTER TABLE _T_new ADD x INT", seen)
    assert isinstance(ddl, AlterTable)
    assert said(found) == ["ShadowAltered _T_new"]
