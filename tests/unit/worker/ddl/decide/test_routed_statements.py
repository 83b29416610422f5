"""Which statements of the binlog stop a task: by its rules, whatever the case of the names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardmerge.proto import config_pb2
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.ddl.decide.routed_statements import RoutedScope, first_ddl, short_text, tables_text
from shardmerge.worker.relay.model import Statement
from shardmerge.worker.rules import Rules
from shardmerge.worker.rules.online_ddl_names import OnlineNames
from shardmerge.worker.rules.table_scope import TableScope

AT = RelayOffset(1, 4)


def _rules(case_sensitive: bool, *, schema: str = "shard*", table: str = "t*") -> Rules:
    lists = config_pb2.BlockAllowList(name="b", do_tables=[config_pb2.TableName(schema=schema, table=table)])
    return Rules.from_config(
        config_pb2.SubTaskConfig(
            task="merge", meta_schema="dm_meta", case_sensitive=case_sensitive, block_allow_list=lists
        )
    )


def _statement(text: str, schema: str = "") -> Statement:
    return Statement(AT, AT, AT, SourcePosition("mysql-bin.000001", 4), schema, text, None)


@pytest.mark.parametrize("case_sensitive", [True, False])
@pytest.mark.parametrize(
    ("text", "schema", "expected"),
    [
        ("TRUNCATE TABLE shard1.t1", "", True),
        ("TRUNCATE t1", "shard1", True),
        ("TRUNCATE u1", "shard1", False),
        ("RENAME TABLE shard1.t1 TO x.y", "", True),
        ("RENAME TABLE x.y TO shard1.t1", "", True),
        ("ALTER TABLE x.y EXCHANGE PARTITION p WITH TABLE shard1.t1", "", True),
        ("UPDATE shard1.t1 SET a = 1", "", True),
        ("UPDATE x.y SET a = 1", "", False),
        ("DROP DATABASE shard1", "", True),
        ("DROP DATABASE x", "", False),
        ("CREATE USER u", "shard1", False),
        ("CALL something()", "x", True),
        # A server with lower_case_table_names=1 logs what was typed; its tables are in lower case.
        ("TRUNCATE TABLE SHARD1.T1", "", True),
        ("TRUNCATE TABLE shard1.T1", "", True),
        ("TRUNCATE TABLE T1", "Shard1", True),
        ("TRUNCATE TABLE SHARD1.U1", "", False),
        ("DROP DATABASE SHARD1", "", True),
        ("DROP DATABASE X", "", False),
    ],
)
def test_statements_on_routed_tables_count_in_any_case(
    text: str, schema: str, expected: bool, case_sensitive: bool
) -> None:
    assert RoutedScope(TableScope(_rules(case_sensitive)))(_statement(text, schema)) is expected


def test_rules_in_capitals_count_as_written() -> None:
    scope = RoutedScope(TableScope(_rules(True, schema="SHARD*", table="T*")))
    assert scope(_statement("TRUNCATE TABLE SHARD1.T1"))
    assert not scope(_statement("TRUNCATE TABLE shard1.t1"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("RENAME TABLE a TO S.b", "d.a, S.b"),
        ("DROP DATABASE s", "s"),
        ("CALL p()", "(unknown)"),
    ],
)
def test_messages_name_the_tables_as_they_are_written(text: str, expected: str) -> None:
    assert tables_text(_statement(text, "d")) == expected


def test_messages_show_a_statement_in_one_line() -> None:
    assert short_text(_statement("TRUNCATE\n  TABLE\tt")) == "TRUNCATE TABLE t"
    assert len(short_text(_statement("DROP TABLE t" * 1000))) == 500


@pytest.mark.parametrize(
    ("text", "beside"),
    [
        ("CREATE TABLE shard1._t1_gho LIKE shard1.t1", True),
        ("DROP TABLE shard1._T1_gho", True),
        ("ALTER TABLE shard1._u1_gho ADD x INT", False),
    ],
)
def test_statements_on_shadow_tables_only_on_request(text: str, beside: bool) -> None:
    rules = _rules(case_sensitive=True)
    online = config_pb2.OnlineDdl(shadow_tables=["^_(.+)_gho$"])
    rules = replace(rules, online=OnlineNames.from_config("merge", online))
    assert RoutedScope(TableScope(rules), with_shadow_tables=True)(_statement(text)) is beside
    assert not RoutedScope(TableScope(rules))(_statement(text))


@pytest.mark.parametrize(
    ("texts", "before", "first"),
    [
        (("CREATE TABLE shard.t9 (id INT)",), 500, 0),
        (("CREATE TABLE shard._t1_gho LIKE shard.t1", "ALTER TABLE shard.t1 ADD x INT"), 500, 0),
        (("CREATE TABLE other.t (id INT)", "UPDATE shard.t1 SET id = 1", "ALTER TABLE shard.t1 ADD x INT"), 500, 2),
        (("CREATE TABLE other.t (id INT)", "ALTER TABLE shard.t1 ADD x INT"), 200, None),
        ((), 500, None),
    ],
)
def test_the_first_ddl_before_a_place(texts: tuple[str, ...], before: int, first: int | None) -> None:
    online = config_pb2.OnlineDdl(shadow_tables=["^_(.+)_gho$"])
    rules = replace(_rules(case_sensitive=True), online=OnlineNames.from_config("merge", online))
    statements = [
        replace(_statement(text), group_start=RelayOffset(1, 100 * (number + 1))) for number, text in enumerate(texts)
    ]
    found = first_ddl(statements, TableScope(rules), RelayOffset(1, before))
    assert found == (None if first is None else statements[first])
