"""Statements translated for a server of another kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.mysql.target_dialect import ServerKind, TargetDialect
from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.table import Table, ValueKind
from shardmerge.worker.ddl.sql.dialect import Dialect, declared_types
from shardmerge.worker.relay.model import Statement
from tests.support.plans import integer, text


def stand_ins(names: frozenset[str]) -> Mapping[str, str | None]:
    known: dict[str, str | None] = {"utf8mb4_0900_ai_ci": "utf8mb4_bin", "strange_ci": None}
    known |= {"latin1_swedish_ci": "latin1_bin", "big5_chinese_ci": "utf8mb4_bin", "big5_bin": "utf8mb4_bin"}
    return {name: known[name] for name in names if name in known}


def dialect(source: str, target: str) -> Dialect:
    return Dialect(source == "mariadb", TargetDialect(ServerKind(target), (1, 0, 0)), stand_ins)


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
    statement = statement_of("ALTER TABLE t ADD A JSON, ADD b TEXT")
    found = dialect("mysql", "mariadb").as_declared(table, statement, "latin1_swedish_ci")
    assert [column.kind for column in found.columns] == [ValueKind.INTEGER, ValueKind.JSON, ValueKind.STRING]
    assert (found.columns[1].type_text, found.columns[1].collation) == ("json", "")
    assert dialect("mariadb", "mariadb").as_declared(table, statement, "latin1_swedish_ci") == table
    assert dialect("mysql", "mysql").as_declared(table, statement, "latin1_swedish_ci") == table


def statement_of(sql: str) -> Statement:
    begin = RelayOffset(1, 4)
    return Statement(begin, begin, begin, SourcePosition("b.1", 4), "d", sql, None)


@pytest.mark.parametrize(
    ("statement", "sent"),
    [
        (
            "ALTER TABLE t ADD a CHAR(9) CHARACTER SET big5 COLLATE big5_chinese_ci COMMENT 'CHARSET big5'",
            "ALTER TABLE t ADD a CHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin COMMENT 'CHARSET big5'",
        ),
        ("ALTER TABLE t DEFAULT CHARSET = Big5", "ALTER TABLE t DEFAULT CHARSET = utf8mb4"),
        (
            "ALTER TABLE t ADD a TEXT CHARSET latin1 COLLATE latin1_swedish_ci, ADD b TEXT CHARACTER SET binary",
            "ALTER TABLE t ADD a TEXT CHARSET latin1 COLLATE latin1_bin, ADD b TEXT CHARACTER SET binary",
        ),
    ],
)
def test_charsets_that_tidb_lacks(statement: str, sent: str) -> None:
    assert dialect("mariadb", "tidb").for_target(statement, 0) == sent
    assert dialect("mariadb", "tidb").lacking_charsets(statement, 0) == (("big5",) if "utf8mb4" in sent else ())
    assert dialect("mysql", "mysql").lacking_charsets(statement, 0) == ()


def test_texts_that_tidb_does_not_lengthen() -> None:
    items = (
        "  `id` int NOT NULL,\n  `a` text COLLATE latin1_german1_ci NOT NULL COMMENT 'text',\n  `b` text,\n"
        "  `Long` longtext,\n  `d` tinytext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    )
    printed = f"CREATE TABLE `t` (\n{items}\n) ENGINE=InnoDB DEFAULT CHARSET=latin1"
    creation = CreateStatement(printed, "latin1_swedish_ci")
    columns = [integer(), *(replace(text(name), type_text="text", charset="latin1") for name in ("a", "b"))]
    columns += [replace(text("Long"), type_text="longtext", charset="latin1")]
    columns += [replace(text("d"), type_text="tinytext", charset="utf8mb4")]

    def sent(statement: str, target: str = "tidb") -> str:
        return dialect("mariadb", target).with_longer_texts(statement, creation, columns, 0)

    statement = "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4, ADD c INT"
    assert sent(statement) == (
        "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4, "
        "MODIFY COLUMN `a` mediumtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'text', "
        "MODIFY COLUMN `b` mediumtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, ADD c INT"
    )
    assert sent(statement, "mysql") == statement
    own = "ALTER TABLE t DROP a, MODIFY B TEXT CHARSET latin1, CONVERT TO CHARACTER SET big5 COLLATE big5_bin"
    assert sent(own) == own
    for same in ("ALTER TABLE t CONVERT TO CHARACTER SET latin2", "ALTER TABLE t CHARSET utf8mb4", "DROP INDEX i ON t"):
        assert sent(same) == same


def test_unique_keys_that_tidb_does_not_drop_as_constraints() -> None:
    statement = "ALTER TABLE t ADD CONSTRAINT u UNIQUE (a), DROP CONSTRAINT `constraint`, DROP constraint IF EXISTS v"
    sent = "ALTER TABLE t ADD CONSTRAINT u UNIQUE (a), DROP KEY `constraint`, DROP KEY IF EXISTS v"
    assert dialect("mariadb", "tidb").for_target(statement, 0) == sent
    assert dialect("mariadb", "mysql").for_target(statement, 0) == statement


@pytest.mark.parametrize(
    ("statement", "collations"),
    [
        ("ALTER TABLE t ADD a CHAR(9), ADD b TEXT", ["big5_chinese_ci", "big5_chinese_ci"]),
        ("ALTER TABLE t ADD a CHAR(9) CHARSET gbk NOT NULL, ADD b TEXT COLLATE ucs2_bin", ["gbk_bin", "ucs2_bin"]),
        (
            "ALTER TABLE t ADD a CHAR(9) DEFAULT (CONVERT('x' USING gbk)), ADD b TEXT ASCII",
            ["big5_chinese_ci", "latin1_bin"],
        ),
        ("ALTER TABLE t ADD a NCHAR(9), ADD b ENUM('CHARSET gbk')", ["utf8mb3_general_ci", "big5_chinese_ci"]),
        ("ALTER TABLE t ADD a CHAR(9), ADD b CHAR(9) CHARSET latin1, CHARSET gbk", ["gbk_bin", "latin1_bin"]),
        ("CREATE TABLE t (a TEXT, b TEXT CHARSET gbk) CHARSET=big5 COLLATE big5_bin", ["big5_bin", "gbk_bin"]),
        ("CREATE TABLE t (id INT, a TEXT)", ["big5_chinese_ci", "utf8mb4_bin"]),
    ],
)
def test_charsets_are_those_of_the_source(statement: str, collations: list[str]) -> None:
    columns = tuple(replace(text(name), charset="utf8mb4", collation="utf8mb4_bin") for name in ("a", "b"))
    table = Table("d", "t", columns, (0,), "PRIMARY", (), False, "InnoDB")
    found = dialect("mysql", "tidb").as_declared(table, statement_of(statement), "big5_chinese_ci")
    assert [column.collation for column in found.columns] == collations
    assert [column.charset for column in found.columns] == [name.split("_")[0] for name in collations]


def test_the_tables_default_is_that_of_the_source() -> None:
    creation = CreateStatement("CREATE TABLE ...", "utf8mb4_bin")
    for statement, collation in {
        "ALTER TABLE t ADD a INT": "big5_chinese_ci",
        "ALTER TABLE t ADD a TEXT CHARSET gbk": "big5_chinese_ci",
        "ALTER TABLE t CONVERT TO CHARACTER SET gbk COLLATE gbk_chinese_ci": "gbk_chinese_ci",
        "ALTER TABLE t DEFAULT COLLATE = ucs2_bin": "ucs2_bin",
    }.items():
        after = dialect("mysql", "tidb").default_after(creation, "big5_chinese_ci", statement_of(statement))
        assert after.collation == collation
        assert (
            dialect("mysql", "mariadb").default_after(creation, "big5_chinese_ci", statement_of(statement)) == creation
        )


def test_a_converted_text_becomes_as_long_as_it_is_at_the_source() -> None:
    before = tuple(
        replace(text(name), type_text=type_text, charset="latin1", collation="latin1_swedish_ci")
        for name, type_text in (("a", "varchar(9)"), ("b", "text"), ("c", "char(2)"))
    )
    now = tuple(replace(column, charset="latin1", collation="latin1_bin") for column in before)
    table = Table("d", "t", now, (0,), "PRIMARY", (), False, "InnoDB")
    statement = statement_of("ALTER TABLE t CONVERT TO CHARACTER SET gbk, MODIFY c CHAR(2) CHARSET latin1")
    found = dialect("mysql", "tidb").as_declared(table, statement, "latin1_swedish_ci", before)
    assert [(column.type_text, column.charset) for column in found.columns] == [
        ("varchar(9)", "gbk"),
        ("mediumtext", "gbk"),
        ("char(2)", "latin1"),
    ]
    back = statement_of("ALTER TABLE t CONVERT TO CHARACTER SET ascii")
    found = dialect("mysql", "tidb").as_declared(table, back, "latin1_swedish_ci", before)
    assert [column.type_text for column in found.columns] == ["varchar(9)", "text", "char(2)"]
    assert dialect("mysql", "mysql").converted_columns(before, statement) == frozenset()


@pytest.mark.parametrize(
    ("statement", "left"),
    [
        (
            "ALTER TABLE t MODIFY a INT NOT NULL DEFAULT NEXTVAL(`s`.sq) FIRST",
            "ALTER TABLE t MODIFY a INT NOT NULL FIRST",
        ),
        (
            "ALTER TABLE t MODIFY a INT DEFAULT NEXT VALUE FOR s.sq COMMENT 'x'",
            "ALTER TABLE t MODIFY a INT COMMENT 'x'",
        ),
        (
            "ALTER TABLE t ALTER a SET DEFAULT (1 + nextval(sq)), ALTER b SET DEFAULT 5",
            "ALTER TABLE t ALTER a DROP DEFAULT, ALTER b SET DEFAULT 5",
        ),
        (
            "CREATE TABLE t (a INT DEFAULT PREVIOUS VALUE FOR sq, b INT DEFAULT (LASTVAL(sq)))",
            "CREATE TABLE t (a INT, b INT)",
        ),
        ("ALTER TABLE t ADD a TEXT DEFAULT 'nextval(s)', ADD KEY nextval (a), DEFAULT CHARSET utf8mb4", ""),
        ("CREATE TABLE t (nextval INT DEFAULT 5, value INT DEFAULT (nextval + 1))", ""),
    ],
)
@pytest.mark.parametrize("target", ["mariadb", "mysql"])
def test_defaults_of_sequences_are_left_out(statement: str, left: str, target: str) -> None:
    assert dialect("mariadb", target).for_target(statement, 0) == (left or statement)


def test_the_default_of_a_sequence_in_mode_oracle() -> None:
    statement = "CREATE TABLE t (a INT DEFAULT sq.nextval, b INT)"
    assert dialect("mariadb", "mysql").for_target(statement, 1 << 9) == "CREATE TABLE t (a INT, b INT)"
    assert dialect("mariadb", "mysql").for_target(statement, 0) == statement
