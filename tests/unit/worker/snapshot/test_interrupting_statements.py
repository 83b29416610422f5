"""Tests which statements interrupt the copy of a table, and after which a chunk is read again."""

from __future__ import annotations

import pytest

from shardmerge.proto import config_pb2
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.table_scope import TableScope
from shardmerge.worker.snapshot.interrupting_statements import InterruptingStatements
from tests.unit.worker.snapshot.statements import statement_at

SHARDS = {("db", "a"): 0, ("db", "b"): 1, ("other", "a"): 2}


def _statements(action: config_pb2.FilterAction.ValueType | None = None) -> InterruptingStatements:
    config = config_pb2.SubTaskConfig(
        task="t",
        source_id="s1",
        case_sensitive=True,
        block_allow_list=config_pb2.BlockAllowList(name="l", do_dbs=["db", "other"]),
    )
    config.online_ddl.shadow_tables.append("^_(.+)_gho$")
    if action is not None:
        config.event_filters.add(
            name="f", schema_pattern="db", table_pattern="*", events=["truncate table", "alter table"], action=action
        )
    return InterruptingStatements(TableScope(Rules.from_config(config)), SHARDS)


@pytest.mark.parametrize(
    ("text", "interrupted"),
    [
        ("ALTER TABLE a ADD x INT", {0}),
        ("ALTER TABLE other.a ADD x INT", {2}),
        ("TRUNCATE b", {1}),
        ("DROP TABLE a, b, c", {0, 1}),
        ("DROP DATABASE other", {2}),
        ("DROP DATABASE DB", {0, 1}),
        ("RENAME TABLE a TO _a_del, _a_gho TO a", {0}),
        ("ALTER TABLE _a_gho ADD x INT", set[int]()),
        ("CREATE TABLE c LIKE a", set[int]()),
        ("CREATE INDEX i ON B (id)", {1}),
        ("OPTIMIZE TABLE a", set[int]()),
        ("ANALYZE TABLE a", set[int]()),
        ("CREATE TRIGGER r BEFORE INSERT ON a FOR EACH ROW SET @x = 1", set[int]()),
        ("UPDATE a SET id = 1", set[int]()),
        ("GRANT SELECT ON db.a TO u", set[int]()),
    ],
)
def test_ddl_interrupts_the_copy_of_the_tables_that_it_names(text: str, interrupted: set[int]) -> None:
    assert _statements().interrupted_by(statement_at(10, text)) == interrupted


def test_a_truncate_that_a_filter_skips_does_not_interrupt() -> None:
    truncate, alter = statement_at(10, "TRUNCATE a"), statement_at(10, "ALTER TABLE a ADD x INT")
    ignoring, stopping = (
        _statements(action) for action in (config_pb2.FILTER_ACTION_IGNORE, config_pb2.FILTER_ACTION_ERROR)
    )
    assert ignoring.interrupted_by(truncate) == set()
    assert ignoring.interrupted_by(alter) == {0}, "the structure changes at the source"
    assert stopping.interrupted_by(truncate) == {0}


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("UPDATE a SET id = 1", True),
        ("UPDATE elsewhere.a SET id = 1", False),
        ("MERGE INTO a", True),
        ("ALTER TABLE a ADD x INT", False),
        ("TRUNCATE b", False),
    ],
)
def test_only_statements_that_may_change_rows_block_a_fix_up(text: str, blocks: bool) -> None:
    assert _statements().blocks_fix_up(statement_at(10, text)) is blocks
