"""Tests what the pre-check reports about columns that refer to mapped columns, with the documented grants only."""

from __future__ import annotations

import pytest

from shardmerge.proto import config_pb2 as config
from shardmerge.proto import worker_pb2 as pb
from shardmerge.worker.verify.precheck import check_subtask
from tests.integration.check_rig import fresh, server, source_of, subtask_of
from tests.support.database import Database

__all__ = ["fresh", "server"]

GRANTS = "GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO dm@'127.0.0.%'"
REFERENCE = config.ReferenceRule(table="c", column="t_id", to_table="t", to_column="id")


@pytest.fixture
def children(fresh: Database) -> Database:
    """Return the server with tables ``c_*`` that refer to ``t_*`` by the name of a column."""
    fresh.execute(
        GRANTS,
        "CREATE TABLE shard_1.c_1 (id bigint PRIMARY KEY, t_id bigint, `odd.name` bigint)",
        "CREATE TABLE shard_2.c_2 (id bigint PRIMARY KEY, t_id bigint, `odd.name` bigint)",
    )
    return fresh


def checked(server: Database, *references: config.ReferenceRule, none: bool = False) -> list[pb.CheckResult]:
    subtask = subtask_of(server)
    subtask.routes.add(
        name="c", schema_pattern="shard_*", table_pattern="c_*", target_schema="merged", target_table="c"
    )
    subtask.references.extend(references)
    subtask.no_references = none
    results = check_subtask(source_of(server, "dm", "secret"), subtask)
    return [result for result in results if result.name == "references"]


def codes(results: list[pb.CheckResult]) -> list[tuple[int, int]]:
    return [(result.code, result.state) for result in results]


FAIL, WARN, PASS = pb.CHECK_STATE_FAIL, pb.CHECK_STATE_WARN, pb.CHECK_STATE_PASS


def test_a_foreign_key_to_a_mapped_column(children: Database) -> None:
    children.execute("ALTER TABLE shard_2.c_2 ADD CONSTRAINT f FOREIGN KEY (t_id) REFERENCES t_2 (id)")
    results = checked(children, none=True)
    assert codes(results) == [(12085, FAIL)]
    assert "shard_2.c_2 (f to t_2)" in results[0].error_msg
    assert results[0].instruction.endswith("references:\n- {from: c.t_id, to: t.id}")
    assert codes(checked(children, REFERENCE)) == [(0, PASS)]
    wrong = config.ReferenceRule(table="c", column="t_id", to_table="t", to_column="id", shard_table="t_1")
    assert 12085 in [code for code, _ in codes(checked(children, wrong))]


def test_the_entry_names_another_shard_table(children: Database) -> None:
    children.execute(
        "CREATE TABLE shard_2.t_7 LIKE shard_2.t_2",
        "ALTER TABLE shard_2.c_2 ADD CONSTRAINT f FOREIGN KEY (`odd.name`) REFERENCES shard_2.t_7 (id)",
    )
    [result] = checked(children, none=True)
    assert result.instruction.endswith('- {from: "`c`.`odd.name`", to: t.id, shard-table: "t_7"}')
    children.execute(
        "ALTER TABLE shard_2.c_2 DROP FOREIGN KEY f",
        "CREATE TABLE shard_1.t_2 LIKE shard_2.t_2",
        "ALTER TABLE shard_2.c_2 ADD CONSTRAINT g FOREIGN KEY (t_id) REFERENCES shard_1.t_2 (id)",
    )
    [result] = checked(children, none=True)
    assert result.instruction.endswith('- {from: c.t_id, to: t.id, shard-table: "t_*", shard-schema: "shard_1"}')
    children.execute("DROP DATABASE shard_2")  # the schemas are dropped in another order


def test_a_composite_key_and_a_table_outside_the_task(children: Database) -> None:
    children.execute(
        "CREATE DATABASE other",
        "CREATE TABLE other.p (id bigint PRIMARY KEY)",
        "ALTER TABLE shard_2.t_2 ADD UNIQUE KEY both_of (v, id)",
        "ALTER TABLE shard_2.c_2 ADD COLUMN v int, ADD CONSTRAINT two FOREIGN KEY (v, t_id) REFERENCES t_2 (v, id), "
        "ADD CONSTRAINT away FOREIGN KEY (`odd.name`) REFERENCES other.p (id)",
    )
    children.execute("ALTER TABLE shard_1.c_1 ADD COLUMN v int")
    results = checked(children, REFERENCE)
    assert codes(results) == [(12087, WARN)]
    assert "shard_2.c_2.odd.name (away to other.p.id)" in results[0].error_msg
    assert (12085, FAIL) in codes(checked(children))


def test_names_propose_references(children: Database) -> None:
    results = checked(children)
    assert codes(results) == [(12088, WARN)]
    assert "c.t_id" in results[0].error_msg
    assert "\n- {from: c.t_id, to: t.id}\n" in results[0].instruction
    assert codes(checked(children, none=True)) == [(0, PASS)]
    assert codes(checked(children, REFERENCE)) == [(0, PASS)]


def test_references_that_cannot_be(children: Database) -> None:
    children.execute("CREATE TABLE shard_1.c_9 LIKE shard_1.c_1")
    results = checked(children, REFERENCE)
    assert codes(results) == [(12086, FAIL)]
    assert "shard_1.c_9 (to shard_1.t_9)" in results[0].error_msg
    nosuch = config.ReferenceRule(table="c", column="nosuch", to_table="t", to_column="id")
    assert (12089, FAIL) in codes(checked(children, nosuch, none=True))
    elsewhere = config.ReferenceRule(table="d", column="t_id", to_table="t", to_column="id")
    assert (12089, WARN) in codes(checked(children, elsewhere, none=True))


def test_a_reference_to_a_column_without_mapping(children: Database) -> None:
    children.execute("ALTER TABLE shard_1.t_1 ADD COLUMN u bigint", "ALTER TABLE shard_2.t_2 ADD COLUMN u bigint")
    unmapped = config.ReferenceRule(table="c", column="t_id", to_table="t", to_column="u")
    [result] = checked(children, unmapped, none=True)
    assert codes([result]) == [(12096, FAIL)]
    assert "c.t_id to t.u" in result.error_msg and "maps u of: shard_1.t_1, shard_2.t_2" in result.error_msg
    assert "`target-column: u`" in result.instruction
    chain = config.ReferenceRule(table="t", column="u", to_table="t", to_column="id")
    assert codes(checked(children, unmapped, chain, none=True)) == [(0, PASS)]
