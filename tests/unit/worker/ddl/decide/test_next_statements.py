"""Which statement is the next one of each released shard table."""

from __future__ import annotations

import pytest

from shardmerge.proto import config_pb2
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.ddl.decide.next_statements import WaitingTable, next_statements
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.rules import Rules

WAITING = {
    1: WaitingTable(("shard", "a"), RelayOffset(1, 10)),
    2: WaitingTable(("shard", "b"), RelayOffset(1, 30)),
    3: WaitingTable(("shard", "c"), RelayOffset(1, 20)),
}


def _found(*texts: str) -> dict[int, int]:
    """Return the number of each waiting table's statement; they are 10 bytes apart, from byte 10 on."""
    lists = config_pb2.BlockAllowList(name="b", do_dbs=["shard"])
    config = config_pb2.SubTaskConfig(task="t", meta_schema="m", case_sensitive=True, block_allow_list=lists)
    statements = [
        Statement(
            RelayOffset(1, 10 * at),
            RelayOffset(1, 10 * at),
            RelayOffset(1, 10 * at + 10),
            SourcePosition("b.1", 10 * at),
            "shard",
            text,
            0,
        )
        for at, text in enumerate(texts, 1)
    ]
    found = next_statements(Rules.from_config(config), WAITING, statements)
    return {number: statements.index(statement) for number, statement in found.items()}


def test_each_table_has_its_own() -> None:
    alters = [f"ALTER TABLE {table} ADD COLUMN x INT" for table in "acbcab"]
    # Those of b and c at bytes 20 and 30: b waits from byte 30 on, c from 20.
    assert _found(*alters) == {1: 0, 3: 1, 2: 2}


def test_a_statement_before_its_place_has_run() -> None:
    assert _found("ALTER TABLE b ADD x INT", "ALTER TABLE b ADD y INT", "ALTER TABLE b ADD z INT") == {2: 2}


@pytest.mark.parametrize(
    "text",
    [
        "RENAME TABLE c TO d",
        "ALTER TABLE c RENAME TO d",
        "CREATE TABLE n LIKE a",
        "DROP TABLE c",
        "DROP DATABASE shard",
        "UPDATE c SET v = 1",
        "DROP TABLE c, x",
        "ALTER TABLE shard.p EXCHANGE PARTITION p WITH TABLE c",
        "CALL something()",
        "ALTER TABLE C ADD COLUMN x INT",  # a server with lower_case_table_names=1
    ],
)
def test_it_ends_before_another_kind_of_statement(text: str) -> None:
    first = "ALTER TABLE a ADD COLUMN x INT"
    assert _found(first, "ALTER TABLE o ADD x INT", text, "ALTER TABLE b ADD x INT") == {1: 0}
