"""The actions of a statement on shard tables."""

from __future__ import annotations

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.ddl.decide.actions import (
    Action,
    Alter,
    Create,
    DdlContext,
    Drop,
    Rename,
    ShardTarget,
    Truncate,
    actions_of,
    renames_of,
)
from shardmerge.worker.ddl.sql.statement import parse_ddl
from shardmerge.worker.relay.model import Statement
from tests.support.plans import integer, table_plan

NAMES = ("a", "b", "c", "low")
SHARDS = {
    ("d", name): ShardTarget(table_plan((integer(),), (0,), shard=number, schema="d", name=name), 1)
    for number, name in enumerate(NAMES)
}


def scene() -> DdlContext:
    """The rules let everything of schema d through but what begins with x; d.view and x.view are views."""
    return DdlContext(
        "task",
        "mysql-01",
        SHARDS,
        lambda schema, table: schema == "d" and not table.startswith("x"),
        lambda _, table: table == "view",
    )


def decided(text: str) -> tuple[Action, ...]:
    begin = RelayOffset(1, 4)
    statement = Statement(begin, begin, begin, SourcePosition("mysql-bin.000001", 4), "d", text, None)
    ddl = parse_ddl(text, "d", None)
    assert ddl is not None
    return actions_of(ddl, statement, scene())


def said(actions: tuple[Action, ...]) -> list[str]:
    found: list[str] = []
    for action in actions:
        match action:
            case Alter(shard=shard) | Drop(shard=shard) | Truncate(shard=shard):
                found.append(f"{type(action).__name__} {shard.name[1]}")
            case Create(name=name, replaces=there):
                found.append(f"Create {name[1]}" + (f" for {there.name[1]}" if there else ""))
            case Rename(moves=moves):
                found.append(
                    "Rename " + ", ".join(sorted(f"{shard.name[1]}>{'.'.join(name)}" for shard, name in moves))
                )
    return found


@pytest.mark.parametrize(
    ("text", "actions"),
    [
        ("ALTER TABLE a ADD n INT", ["Alter a"]),
        ("ALTER TABLE e.a ADD n INT", []),
        ("ALTER TABLE x ADD n INT", []),
        ("ALTER TABLE a", []),
        ("ALTER TABLE LOW ADD n INT", ["Alter low"]),
        ("ALTER TABLE D.Low ADD n INT", ["Alter low"]),
        ("CREATE INDEX i ON b (n)", ["Alter b"]),
        ("DROP INDEX i ON d.b", ["Alter b"]),
        ("DROP INDEX i ON e.b", []),
        ("TRUNCATE a", ["Truncate a"]),
        ("TRUNCATE TABLE x.a", []),
        ("DROP TABLE a, e.a, none, d.c, LOW", ["Drop a", "Drop c", "Drop low"]),
        ("DROP DATABASE d", ["Drop a", "Drop b", "Drop c", "Drop low"]),
        ("DROP DATABASE D", ["Drop a", "Drop b", "Drop c", "Drop low"]),
        ("DROP DATABASE e", []),
        ("CREATE DATABASE d", []),
        ("ALTER DATABASE d CHARACTER SET latin1", []),
        ("CREATE TABLE new (id INT)", ["Create new"]),
        ("CREATE TABLE x (id INT)", []),
        ("CREATE TABLE e.new (id INT)", []),
        ("CREATE TABLE a (id INT)", ["Create a for a"]),
        ("CREATE OR REPLACE TABLE a (id INT)", ["Create a for a"]),
        ("CREATE TABLE IF NOT EXISTS a (id INT)", []),
        ("CREATE TABLE IF NOT EXISTS new LIKE a", ["Create new"]),
        ("RENAME TABLE a TO n", ["Rename a>d.n"]),
        ("RENAME TABLE x TO e.y, xa TO xb", []),
        ("RENAME TABLE a TO t, b TO a, t TO b", ["Rename a>d.b, b>d.a"]),
        ("RENAME TABLE a TO t, t TO a", []),
        ("RENAME TABLE a TO x, x TO n", ["Rename a>d.n"]),
        ("RENAME TABLE a TO t, b TO a", ["Rename a>d.t, b>d.a"]),
        ("RENAME TABLE LOW TO high", ["Rename low>d.high"]),
        ("RENAME TABLE e.view TO view", []),
        ("RENAME TABLE x TO n, n TO x", []),
        ("ALTER TABLE a RENAME TO n", ["Rename a>d.n"]),
        ("ALTER TABLE a RENAME n, ALGORITHM=INPLACE", ["Rename a>d.n"]),
        ("ALTER TABLE a RENAME n, ADD m INT", ["Alter a", "Rename a>d.n"]),
        ("ALTER TABLE a RENAME a, ADD m INT", ["Alter a"]),
        ("ALTER TABLE a RENAME a", []),
        ("ALTER TABLE x RENAME xy, ADD m INT", []),
        ("ALTER TABLE a PARTITION BY HASH (id)", ["Alter a"]),
        ("ALTER TABLE e.p EXCHANGE PARTITION p0 WITH TABLE e.q", []),
        ("ALTER TABLE e.p TRUNCATE PARTITION p0", []),
    ],
)
def test_actions(text: str, actions: list[str]) -> None:
    assert said(decided(text)) == actions


@pytest.mark.parametrize(
    ("text", "spec", "holds"),
    [
        ("RENAME TABLE a TO e.a", errors.ddl.RENAME_LEAVES, "e.a"),
        ("RENAME TABLE a TO x", errors.ddl.RENAME_LEAVES, "do not let it through"),
        ("RENAME TABLE x TO n", errors.ddl.RENAME_LEAVES, "d.n"),
        ("RENAME TABLE e.t TO n, b TO e.t", errors.ddl.RENAME_LEAVES, "d.n"),
        ("RENAME TABLE a TO t, x TO a", errors.ddl.RENAME_LEAVES, "never copied"),
        ("ALTER TABLE a ADD n INT, RENAME TO e.a", errors.ddl.RENAME_LEAVES, "e.a"),
        ("ALTER TABLE x RENAME n", errors.ddl.RENAME_LEAVES, "d.n"),
        ("ALTER TABLE a DROP PARTITION p", errors.ddl.MOVES_ROWS, "d.a"),
        ("ALTER TABLE a DISCARD TABLESPACE", errors.ddl.MOVES_ROWS, "d.a"),
        ("ALTER TABLE e.p EXCHANGE PARTITION p WITH TABLE d.a", errors.ddl.MOVES_ROWS, "d.a"),
        ("ALTER TABLE e.p CONVERT PARTITION p TO TABLE d.n", errors.ddl.MOVES_ROWS, "d.n"),
        ("ALTER IGNORE TABLE a ADD UNIQUE (n)", errors.ddl.MOVES_ROWS, "d.a"),
    ],
)
def test_refusals(text: str, spec: ErrorSpec, holds: str) -> None:
    with pytest.raises(ShardmergeError) as caught:
        decided(text)
    assert caught.value.spec is spec
    assert holds in str(caught.value)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("text", "moves"),
    [
        ("RENAME TABLE a TO t, x TO a", ["Rename a>d.t"]),
        ("RENAME TABLE a TO e.a, x TO a, b TO n", ["Rename a>e.a, b>d.n"]),
        ("RENAME TABLE x TO n", []),
        ("ALTER TABLE a ADD n INT, RENAME TO e.a", ["Rename a>e.a"]),
        ("ALTER TABLE a TRUNCATE PARTITION p", []),
        ("DROP TABLE a", []),
    ],
)
def test_a_refused_statement_renames_shard_tables_nevertheless(text: str, moves: list[str]) -> None:
    """They take no further part when an operator skips it: another table may have their old names."""
    ddl = parse_ddl(text, "d", None)
    assert ddl is not None
    assert said(renames_of(ddl, scene())) == moves
