"""Statements translated for a server of another kind."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.table import Table, ValueKind
from shardmerge.worker.ddl.sql.dialect import Dialect, declared_types
from shardmerge.worker.relay.model import Statement
from tests.support.plans import integer, text


def stand_ins(names: frozenset[str]) -> Mapping[str, str | None]:
    known: dict[str, str | None] = {"utf8mb4_0900_ai_ci": "utf8mb4_bin", "strange_ci": None}
    return {name: known[name] for name in names if name in known}


def dialect(source: str, target: str) -> Dialect:
    return Dialect(source == "mariadb", target == "mariadb", stand_ins)


@pytest.mark.parametrize(
    ("statement", "types"),
    [
        ("CREATE TABLE t (id INT, J json NOT NULL, KEY j (j), PRIMARY KEY (id))", {"id": "INT", "j": "json"}),
        ("ALTER TABLE t ADD a JSON, ADD COLUMN IF NOT EXISTS b TEXT FIRST", {"a": "JSON", "b": "TEXT"}),
        ("ALTER TABLE t ADD (a JSON, KEY (a), b VARCHAR(9))", {"a": "JSON", "b": "VARCHAR"}),
        ("ALTER TABLE t CHANGE COLUMN a b JSON, MODIFY `c` JSON, DROP COLUMN d", {"b": "JSON", "c": "JSON"}),
        ("ALTER TABLE t ADD KEY json (a), RENAME COLUMN a TO b", {}),
        ("DROP TABLE t", {}),
        ("CREATE TABLE t LIKE u", {}),
    ],
)
def test_declared_types(statement: str, types: dict[str, str]) -> None:
    assert {name: token.text for name, token in declared_types(statement, "d", 0).items()} == types


def test_collations_that_the_target_lacks() -> None:
    said = "ALTER TABLE t ADD a TEXT COLLATE UTF8MB4_0900_ai_ci, COLLATE = 'utf8mb4_0900_ai_ci' COMMENT 'COLLATE x'"
    same = "ALTER TABLE t ADD a TEXT COLLATE latin1_bin COLLATE strange_ci"
    assert dialect("mysql", "mariadb").for_target(same, 0) == same
    found = dialect("mysql", "mariadb").for_target(said, 0)
    assert found.startswith("ALTER TABLE t ADD a TEXT COLLATE utf8mb4_bin, ")


def test_mariadbs_json_is_text() -> None:
    said = "ALTER TABLE t ADD a JSON, ADD json INT, MODIFY b json NULL"
    told = (
        "ALTER TABLE t ADD a LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, ADD json INT, "
        "MODIFY b LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL"
    )
    assert dialect("mariadb", "mysql").for_target(said, 0) == told
    for source, target in (("mariadb", "mariadb"), ("mysql", "mysql"), ("mysql", "mariadb")):
        assert dialect(source, target).for_target(said, 0) == said


def test_json_stored_as_text_is_json_in_row_events() -> None:
    table = Table("d", "t", (integer(), text("a"), text("b")), (0,), "PRIMARY", (), False, "InnoDB")
    begin = RelayOffset(1, 4)
    statement = Statement(
        begin, begin, begin, SourcePosition("b.1", 4), "d", "ALTER TABLE t ADD A JSON, ADD b TEXT", None
    )
    found = dialect("mysql", "mariadb").as_declared(table, statement)
    assert [column.kind for column in found.columns] == [ValueKind.INTEGER, ValueKind.JSON, ValueKind.STRING]
    assert (found.columns[1].type_text, found.columns[1].collation) == ("json", "")
    assert dialect("mariadb", "mariadb").as_declared(table, statement) == table
    assert dialect("mysql", "mysql").as_declared(table, statement) == table
