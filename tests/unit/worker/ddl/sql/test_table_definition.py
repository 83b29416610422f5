"""A table in values, from what servers of both kinds printed of one CREATE TABLE."""

from __future__ import annotations

import pytest

from shardmerge.worker.core.mysql.show_create import CreateStatement
from shardmerge.worker.core.sql.table_text import UnreadableCreateTable, lowercase_names
from shardmerge.worker.ddl.sql.column_definition import ColumnDefinition, parse_column
from shardmerge.worker.ddl.sql.table_definition import TableDefinition, parse_table_definition
from shardmerge.worker.ddl.structure.structure_digest import digest_of

MARIADB = """CREATE TABLE `t` (
  `id` bigint(20) unsigned NOT NULL AUTO_INCREMENT,
  `n` int(11) DEFAULT NULL,
  `t1` tinyint(1) DEFAULT 1,
  `v` varchar(20) NOT NULL DEFAULT 'it''s, \\\\',
  `w` varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL,
  `w2` char(3) CHARACTER SET ascii COLLATE ascii_general_ci DEFAULT NULL,
  `w3` varchar(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci DEFAULT NULL,
  `txt` text DEFAULT NULL,
  `e` enum('a','b,c') DEFAULT 'a',
  `st` set('x','y') DEFAULT NULL,
  `dc` decimal(6,2) unsigned DEFAULT 1.50,
  `b` bit(3) DEFAULT b'101',
  `ts` timestamp(3) NULL DEFAULT NULL,
  `up` timestamp NOT NULL DEFAULT current_timestamp() ON UPDATE current_timestamp() COMMENT 'x',
  `dt` datetime(6) DEFAULT '2020-01-01 00:00:00.500000',
  `neg` int(11) DEFAULT -5,
  `f` double(6,2) DEFAULT 1.25,
  `ex` int(11) DEFAULT (1 + 2),
  `vb` varbinary(9) DEFAULT NULL,
  `j` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL CHECK (json_valid(`j`)),
  `u` int(10) unsigned zerofill DEFAULT NULL,
  `g` int(11) GENERATED ALWAYS AS (`n` + 1) STORED,
  `p` point DEFAULT NULL,
  `inv` int(11) INVISIBLE DEFAULT NULL,
  PRIMARY KEY (`id`),
  UNIQUE KEY `uq` (`n`,`v`(5)),
  KEY `k` (`v`) USING BTREE COMMENT 'c,(',
  FULLTEXT KEY `ft` (`txt`),
  CONSTRAINT `CONSTRAINT_1` CHECK (`n` > 0),
  CONSTRAINT `cc` CHECK (`n` < 9)
) ENGINE=InnoDB DEFAULT CHARSET=latin1 COLLATE=latin1_swedish_ci COMMENT='tt'"""  # 10.11

MYSQL = """CREATE TABLE `t` (
  `id` bigint unsigned NOT NULL AUTO_INCREMENT,
  `n` int,
  `t1` tinyint(1) DEFAULT '1',
  `v` varchar(20) NOT NULL DEFAULT 'it''s, \\\\',
  `w` varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL,
  `w2` char(3) CHARACTER SET ascii COLLATE ascii_general_ci DEFAULT NULL,
  `w3` varchar(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_0900_ai_ci DEFAULT NULL,
  `txt` text,
  `e` enum('a','b,c') DEFAULT 'a',
  `st` set('x','y') DEFAULT NULL,
  `dc` decimal(6,2) unsigned DEFAULT '1.50',
  `b` bit(3) DEFAULT b'101',
  `ts` timestamp(3) NULL DEFAULT NULL,
  `up` timestamp NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP COMMENT 'x',
  `dt` datetime(6) DEFAULT '2020-01-01 00:00:00.500000',
  `neg` int DEFAULT '-5',
  `f` double(6,2) DEFAULT '1.25',
  `ex` int DEFAULT ((1 + 2)),
  `vb` varbinary(9) DEFAULT NULL,
  `j` json DEFAULT NULL,
  `u` int(10) unsigned zerofill DEFAULT NULL,
  `g` int GENERATED ALWAYS AS ((`n` + 1)) STORED,
  `p` point DEFAULT NULL,
  `inv` int DEFAULT NULL /*!80023 INVISIBLE */,
  PRIMARY KEY (`id`),
  UNIQUE KEY `uq` (`n`,`v`(5)),
  KEY `k` (`v`) USING BTREE COMMENT 'c,(',
  KEY `kk` (((`n` + 1))),
  FULLTEXT KEY `ft` (`txt`),
  CONSTRAINT `cc` CHECK ((`n` < 9)),
  CONSTRAINT `t_chk_1` CHECK ((`n` > 0))
) ENGINE=InnoDB DEFAULT CHARSET=latin1 COMMENT='tt'"""  # 9

BOTH = {
    "mariadb": parse_table_definition(CreateStatement(MARIADB, "latin1_swedish_ci")),
    "mysql": parse_table_definition(CreateStatement(MYSQL, "latin1_swedish_ci")),
}


def column(shape: TableDefinition, name: str) -> ColumnDefinition:
    found = shape.column(name)
    assert found is not None
    return found


@pytest.fixture(params=sorted(BOTH))
def shape(request: pytest.FixtureRequest) -> TableDefinition:
    return BOTH[request.param]


def test_both_servers_notations_parse_alike(shape: TableDefinition) -> None:
    told = {each.name: (each.type.sql, each.nullable, each.default_value) for each in shape.columns}
    assert told.pop("w3")[0].startswith("varchar(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_")
    latin1 = " CHARACTER SET latin1 COLLATE latin1_swedish_ci"
    of_server = {"n", "up", "ex", "j"}
    assert {name: each for name, each in told.items() if name not in of_server} == {
        "id": ("bigint unsigned", False, ""),
        "t1": ("tinyint", True, "1"),
        "v": ("varchar(20)" + latin1, False, "'it''s, \\\\'"),
        "w": ("varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", True, "NULL"),
        "w2": ("char(3) CHARACTER SET ascii COLLATE ascii_general_ci", True, "NULL"),
        "txt": ("text" + latin1, True, "NULL"),
        "e": ("enum('a','b,c')" + latin1, True, "'a'"),
        "st": ("set('x','y')" + latin1, True, "NULL"),
        "dc": ("decimal(6,2) unsigned", True, "1.5"),
        "b": ("bit(3)", True, "b'101'"),
        "ts": ("timestamp(3)", True, "NULL"),
        "dt": ("datetime(6)", True, "'2020-01-01 00:00:00.5'"),
        "neg": ("int", True, "-5"),
        "f": ("double(6,2)", True, column(shape, "f").default),
        "vb": ("varbinary(9)", True, "NULL"),
        "u": ("int(10) unsigned zerofill", True, "NULL"),
        "g": ("int", True, ""),
        "p": ("point", True, "NULL"),
        "inv": ("int", True, "NULL"),
    }


def test_attributes(shape: TableDefinition) -> None:
    assert column(shape, "id").rest == ("AUTO_INCREMENT",)
    assert column(shape, "inv").rest == ("INVISIBLE",)
    assert column(shape, "g").is_generated
    assert [each.upper().removesuffix("()") for each in column(shape, "up").rest] == ["ON UPDATE CURRENT_TIMESTAMP"]
    assert column(shape, "up").comment == "'x'"
    assert column(shape, "up").default.upper().startswith("CURRENT_TIMESTAMP")


@pytest.mark.parametrize(
    ("name", "why"),
    [("id", "AUTO_INCREMENT"), ("up", "current time"), ("g", "generated"), ("ex", "no literal")],
)
def test_columns_that_a_row_must_have(shape: TableDefinition, name: str, why: str) -> None:
    assert why in column(shape, name).unfillable


@pytest.mark.parametrize("name", ["t1", "v", "w", "txt", "e", "dc", "b", "ts", "dt", "neg", "vb", "j", "p", "inv"])
def test_columns_that_a_row_may_lack(shape: TableDefinition, name: str) -> None:
    assert column(shape, name).unfillable == ""


def test_a_default_that_was_dropped() -> None:
    assert column(BOTH["mysql"], "n").unfillable == "it has no default"


def test_json_of_mariadb() -> None:
    json = column(BOTH["mariadb"], "j")
    assert json.rest == ("CHECK (json_valid(`j`))",)
    other = parse_column("k", json.text, "latin1_swedish_ci")
    assert "CHECK" in other.unfillable  # a condition on another column


def test_keys_and_checks(shape: TableDefinition) -> None:
    assert shape.primary_key == "PRIMARY KEY (`id`)"
    assert [(each.name, each.keys, each.unique) for each in shape.indexes if each.name != "kk"] == [
        ("uq", ("n", "v"), True),
        ("k", ("v",), False),
        ("ft", ("txt",), False),
    ]
    assert len(shape.checks) == 2
    assert all(each.startswith("CHECK (") for each in shape.checks)
    assert "COMMENT='tt'" in shape.options


def test_a_written_definition_parses_back(shape: TableDefinition) -> None:
    for each in shape.columns:
        if not each.is_generated:
            again = parse_column(each.name, each.written(), "utf8mb4_bin")
            assert again.same == each.same


def test_a_verbatim_definition_parses_alike_in_another_table(shape: TableDefinition) -> None:
    for each in shape.columns:
        again = parse_column(each.name, each.verbatim(), "utf8mb4_bin")
        assert again.same == each.same
    assert column(shape, "w").verbatim() == column(shape, "w").text
    assert column(shape, "g").verbatim() == column(shape, "g").text


def test_following_attributes_are_read_once() -> None:
    text = "int DEFAULT NULL /*!80023 INVISIBLE */ CHECK (`a` > all_of(`on`, 'COMMENT')) COMMENT 'NOT NULL'"
    found = parse_column("a", text, "utf8mb4_bin")
    assert (found.nullable, found.default, found.comment) == (True, "NULL", "'NOT NULL'")
    assert found.rest == ("INVISIBLE", "CHECK (`a` > all_of(`on`, 'COMMENT'))")


@pytest.mark.parametrize(
    ("text", "collation"),
    [
        ("varchar(3) CHARACTER SET latin1", "latin1_swedish_ci"),
        ("varchar(3) CHARACTER SET cp1251", "cp1251_general_ci"),
        ("varchar(3) CHARACTER SET utf8mb4", "utf8mb4_bin"),
        ("varchar(3) COLLATE utf8mb4_polish_ci", "utf8mb4_polish_ci"),
        ("varchar(3)", "utf8mb4_bin"),
        ("int", ""),
    ],
)
def test_effective_collation(text: str, collation: str) -> None:
    assert parse_column("a", text, "utf8mb4_bin").type.collation == collation


@pytest.mark.parametrize("text", ["", "int DEFAULT", "varchar(3", "int COMMENT 'x"])
def test_what_is_not_understood(text: str) -> None:
    with pytest.raises(UnreadableCreateTable, match="column a"):
        parse_column("a", text, "utf8mb4_bin")


def test_next_auto_increment_is_no_option() -> None:
    text = "CREATE TABLE `t` (`id` int) ENGINE=InnoDB {}DEFAULT CHARSET=latin1"
    one, other = (
        parse_table_definition(CreateStatement(text.format(each), "latin1_bin")) for each in ("AUTO_INCREMENT=7 ", "")
    )
    assert one == other


def test_names_in_lower_case() -> None:
    assert (
        lowercase_names("KEY `İK``X` (`A`,`b`) COMMENT 'K`A`'") == f"KEY `{'İ'.lower()}k``x` (`a`,`b`) COMMENT 'K`A`'"
    )


def test_the_digest_is_independent_of_order_and_letter_case_of_names() -> None:
    def digest(*items: str) -> str:
        return digest_of(CreateStatement(f"CREATE TABLE `t` ({', '.join(items)}) ENGINE=InnoDB", "utf8mb4_bin"))

    one = digest("`a` int DEFAULT 7", "`B` varchar(9) DEFAULT 'X`Y`'", "KEY `k` (`a`,`B`)")
    assert one == digest("`b` varchar(9) DEFAULT 'X`Y`'", "`A` int DEFAULT 7", "KEY `K` (`A`,`b`)")
    assert one != digest("`b` varchar(9) DEFAULT 'x`y`'", "`A` int DEFAULT 7", "KEY `K` (`A`,`b`)")


def test_the_default_of_a_server_that_lacks_the_recorded_one() -> None:
    column = "`v` varchar(9) COMMENT 'COLLATE=x\n) COLLATE=y'"
    printed = f"CREATE TABLE `t` (\n  {column}\n) ENGINE=InnoDB DEFAULT CHARSET=latin1"
    recorded = CreateStatement(f"{printed} COLLATE=latin1_bin COMMENT='COLLATE=z'", "latin1_swedish_ci")
    same = CreateStatement(recorded.text, "latin1_bin")
    assert parse_table_definition(recorded) == parse_table_definition(same)
    assert parse_table_definition(recorded).columns[0].type.collation == "latin1_bin"
    assert digest_of(recorded) == digest_of(same)
    older = parse_table_definition(CreateStatement(printed, "latin1_swedish_ci"))
    assert (older.collation, older.columns[0].type.collation) == ("latin1_swedish_ci", "latin1_swedish_ci")
