"""binlog-schema update: the file holds one CREATE TABLE."""

from __future__ import annotations

import pytest

from shardmerge.proto import errors, worker_pb2
from shardmerge.worker.daemon.commands.binlog_schema import only_create_table

REQUEST = worker_pb2.WorkerSchemaRequest(task="merge", source="s1")


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE t (id INT)",
        "create table `x`.`y` (id INT COMMENT ';') ENGINE=InnoDB;\n",
        "-- as it was; then\nCREATE TABLE t (id INT);",
    ],
)
def test_one_create_table(text: str) -> None:
    found, ddl = only_create_table(REQUEST, text, "d")
    assert found.endswith(text[-8:].rstrip(";\n"))
    assert ddl.form == "columns"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-- nothing",
        "CREATE TABLE t (id INT); CREATE TABLE u (id INT)",
        "SET NAMES utf8; CREATE TABLE t (id INT)",
        "DROP TABLE t",
        "CREATE TEMPORARY TABLE t (id INT)",
        "CREATE TABLE t (id INT COMMENT 'open)",
        "SELECT 1",
    ],
)
def test_nothing_else(text: str) -> None:
    with pytest.raises(errors.ShardmergeError) as refused:
        only_create_table(REQUEST, text, "d")
    assert refused.value.spec is errors.ddl.SCHEMA_STATEMENT
