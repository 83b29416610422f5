"""Statements that must not run because rows of their table were copied after them."""

from __future__ import annotations

import pytest

from shardmerge.proto.sql_lexer import tokens
from shardmerge.worker.core.position import RelayOffset
from shardmerge.worker.ddl.decide.actions import Action, Alter, Create, Drop, Rename, ShardTarget, Truncate
from shardmerge.worker.ddl.decide.copied_tables import copied_later
from shardmerge.worker.ddl.sql.statement import CreateTable, parse_ddl
from tests.support.plans import integer, table_plan

SHARD = ShardTarget(table_plan((integer(),), (0,), schema="d", name="t"), 2)
UNTIL = {SHARD.number: RelayOffset(2, 100)}


BEFORE = RelayOffset(2, 99)


def _later(action: Action, text: str = "", at: RelayOffset = BEFORE) -> bool:
    assert not text or tokens(text)
    return copied_later([action], parse_ddl(text, "d", 0) if text else None, at, UNTIL) is SHARD


@pytest.mark.parametrize(
    "clause",
    ["DROP COLUMN c", "MODIFY c INT", "CHANGE c e INT", "RENAME COLUMN c TO e", "CONVERT TO CHARACTER SET utf8mb4",
     "ADD COLUMN e INT, DROP COLUMN c"],
)  # fmt: skip
def test_a_statement_that_changes_values(clause: str) -> None:
    text = f"ALTER TABLE t {clause}"
    assert _later(Alter(SHARD), text)
    assert _later(Alter(SHARD), text, RelayOffset(1, 500))
    assert not _later(Alter(SHARD), text, RelayOffset(2, 100)), "no chunk was read after it"


@pytest.mark.parametrize(
    "clause", ["ADD COLUMN e INT", "ADD KEY (c)", "DROP KEY c", "ALTER c SET DEFAULT 5", "COMMENT 'x'"]
)
def test_a_statement_that_keeps_all_values(clause: str) -> None:
    assert not _later(Alter(SHARD), f"ALTER TABLE t {clause}")


def test_an_index_keeps_all_values() -> None:
    assert not _later(Alter(SHARD), "CREATE INDEX i ON t (c)")
    assert not _later(Alter(SHARD), "DROP INDEX i ON t")


def test_a_statement_that_removes_rows() -> None:
    made = parse_ddl("CREATE OR REPLACE TABLE t (id INT)", "d", 0)
    assert isinstance(made, CreateTable)
    for action in (Truncate(SHARD), Drop(SHARD), Create(("d", "t"), made, SHARD)):
        assert _later(action)
        assert not _later(action, at=RelayOffset(3, 4))
    assert not _later(Create(("d", "t"), made, None))
    assert not _later(Rename(((SHARD, ("d", "n")),)))


def test_a_table_without_history_in_this_run() -> None:
    assert copied_later([Truncate(SHARD)], None, RelayOffset(0, 0), {}) is None
