"""DDL statements in other words."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmerge.proto.sql_lexer import ANSI_QUOTES
from shardmerge.worker.core.sql.clause import Clause, ClauseKind
from shardmerge.worker.ddl.sql.rewrite import (
    normal_form,
    rename_tables,
    unordered_form,
    without_clauses,
    without_references,
)
from shardmerge.worker.ddl.sql.statement import AlterTable, Ddl, names, parse_ddl
from tests.support.ddl_cases import ALTERS, CLAUSES, OTHERS, Case

K = ClauseKind
WHOLE = [text for text, _ in (*ALTERS, *OTHERS)] + [f"ALTER TABLE {case.table} {case.text}" for case in CLAUSES]
NAME = st.text(min_size=1, max_size=12)
KINDS = st.sets(st.sampled_from(list(ClauseKind)))
BLANK = st.sampled_from(["", " ", "\n", "/* , */", " /*!50000 */ ", " -- ' , \n"])
LISTABLE = st.sampled_from([case for case in CLAUSES if not case.is_last])


def read(text: str, sql_mode: int = 0) -> Ddl:
    ddl = parse_ddl(text, "d", sql_mode)
    assert ddl is not None
    return ddl


def altered(text: str, sql_mode: int = 0) -> AlterTable:
    ddl = read(text, sql_mode)
    assert isinstance(ddl, AlterTable)
    return ddl


def cut(text: str, *unwanted: ClauseKind) -> str:
    return without_clauses(text, altered(text), lambda clause: clause.kind in unwanted)


def unreferenced(text: str) -> str:
    return without_references(text, altered(text))


def form(text: str, sql_mode: int = 0, schema: str = "d") -> str:
    ddl = parse_ddl(text, schema, sql_mode)
    assert ddl is not None
    return normal_form(text, sql_mode, ddl)


@st.composite
def alters(draw: st.DrawFn) -> tuple[str, list[Case]]:
    """An ALTER TABLE and its clauses."""
    cases = draw(st.lists(LISTABLE, min_size=1, max_size=5))
    first, before, behind = draw(BLANK), draw(BLANK), draw(BLANK)
    listed = f"{before},{behind}".join(case.text for case in cases)
    text = draw(st.sampled_from([f"ALTER TABLE t {first}{listed}", f"ALTER TABLE t /*!50000 {listed} */"]))
    if draw(st.booleans()):
        tail = Case("PARTITION BY KEY (id, a)", K.PARTITIONING)
        text += draw(st.sampled_from([f" {tail.text}", f"/*!50100 {tail.text} */"]))
        cases = [*cases, tail]
    return text, cases


@given(st.sampled_from(WHOLE), st.dictionaries(st.sampled_from(list("tnehrpm")), st.tuples(NAME, NAME)))
def test_only_names_change(text: str, place: dict[str, tuple[str, str]]) -> None:
    ddl = read(text)
    new = rename_tables(text, ddl, lambda schema, table: place.get(table) if schema == "d" else None)
    again = parse_ddl(new, "d", 0)
    assert again is not None and type(again) is type(ddl)
    # A foreign key without a schema follows its table.
    home = place.get(names(ddl)[0].table, ("d",))[0]
    for old, now in zip(names(ddl), names(again), strict=True):
        expected = place.get(old.table, old.name)
        assert now.name == expected or (now.name == (home, old.table) and old.table not in place)
    assert outside(text, ddl) == outside(new, again)
    if isinstance(ddl, AlterTable) and isinstance(again, AlterTable):
        assert [clause.kind for clause in ddl.clauses] == [clause.kind for clause in again.clauses]


def outside(text: str, ddl: Ddl) -> list[str]:
    """The text between the names."""
    places = [place for name in names(ddl) for place in (name.start, name.end)]
    ends = [0, *places, len(text)]
    return [text[start:end] for start, end in zip(ends[::2], ends[1::2], strict=True)]


def test_new_names_are_quoted_and_others_as_written() -> None:
    text = "ALTER TABLE d . T RENAME e.u, ADD FOREIGN KEY (a) REFERENCES p (x)"
    places = {"T": ("x`y", "new"), "p": ("x", "p")}
    assert rename_tables(text, read(text), lambda _, table: places.get(table)) == (
        "ALTER TABLE `x``y`.`new` RENAME e.u, ADD FOREIGN KEY (a) REFERENCES `x`.`p` (x)"
    )
    ansi = 'TRUNCATE "t"'
    assert rename_tables(ansi, read(ansi, ANSI_QUOTES), lambda _, __: ("a", "b")) == "TRUNCATE `a`.`b`"


@pytest.mark.parametrize(
    ("text", "unwanted", "rest"),
    [
        ("ALTER TABLE t ADD a INT, DROP b, ADD c INT", [K.DROP_COLUMN], "ALTER TABLE t ADD a INT, ADD c INT"),
        ("ALTER TABLE t ADD a INT, DROP b, ADD c INT", [K.ADD_COLUMN], "ALTER TABLE t DROP b"),
        ("ALTER TABLE t ADD a INT, DROP b", [], "ALTER TABLE t ADD a INT, DROP b"),
        ("ALTER TABLE t ADD a INT, LOCK=NONE", [K.ADD_COLUMN], ""),
        ("ALTER ONLINE TABLE t WAIT 3 ADD a INT", [K.ADD_COLUMN], ""),
        ("ALTER ONLINE TABLE t WAIT 3 ADD a INT, FORCE", [K.HOW], "ALTER TABLE t ADD a INT"),
        ("ALTER TABLE t WAIT 3 ADD a INT, DROP b", [K.ADD_COLUMN], "ALTER TABLE t WAIT 3 DROP b"),
        ("ALTER TABLE t", [], ""),
        ("ALTER TABLE t ADD a INT PARTITION BY HASH (a)", [K.ADD_COLUMN], "ALTER TABLE t PARTITION BY HASH (a)"),
        ("ALTER TABLE t ADD a INT PARTITION BY HASH (a)", [K.PARTITIONING], "ALTER TABLE t ADD a INT"),
        (
            "ALTER TABLE t DROP b,ADD KEY(a)PARTITION BY HASH(a)",
            [K.ADD_INDEX],
            "ALTER TABLE t DROP b PARTITION BY HASH(a)",
        ),
        ("ALTER TABLE`t`ADD a INT,DROP`b`", [K.ADD_COLUMN], "ALTER TABLE`t` DROP`b`"),
        (
            "ALTER TABLE t ADD a INT, /*!50100 DROP b, ADD KEY (a) */",
            [K.ADD_COLUMN],
            "ALTER TABLE t /*!50100 DROP b, ADD KEY (a) */",
        ),
        (
            "ALTER TABLE t ADD a INT, /*!50100 DROP b, */ ADD KEY (a)",
            [K.ADD_COLUMN, K.DROP_COLUMN],
            "ALTER TABLE t /*!50100 */ ADD KEY (a)",
        ),
        ("ALTER TABLE t DROP c -- x\n, DROP b", [], "ALTER TABLE t DROP c -- x\n, DROP b"),
        ("ALTER TABLE t COMMENT 'x' -- x\n, DROP b", [K.DROP_COLUMN], "ALTER TABLE t COMMENT 'x' -- x"),
        ("ALTER TABLE t DROP b, ORDER BY a, c", [K.DROP_COLUMN], "ALTER TABLE t ORDER BY a, c"),
    ],
)
def test_without_clauses(text: str, unwanted: list[ClauseKind], rest: str) -> None:
    assert cut(text, *unwanted).replace("  ", " ") == rest


@given(alters(), KINDS)
def test_only_kept_clauses_remain(made: tuple[str, list[Case]], unwanted: set[ClauseKind]) -> None:
    text, cases = made
    rest = without_clauses(text, altered(text), lambda clause: clause.kind in unwanted)
    stay = [case for case in cases if case.kind not in unwanted]
    if all(case.kind is K.HOW for case in stay):
        assert rest == ""
        return
    assert [(clause.kind, written(rest, clause)) for clause in altered(rest).clauses] == [
        (case.kind, case.text) for case in stay
    ]
    assert rest.count("/*!") == text.count("/*!") and rest.startswith("ALTER TABLE t")


def written(text: str, clause: Clause) -> str:
    return text[clause.start : clause.end]


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES p (x)", ""),
        ("ALTER TABLE t DROP FOREIGN KEY f, ALGORITHM = INPLACE", ""),
        ("ALTER TABLE t DROP FOREIGN KEY f, DROP KEY f", "ALTER TABLE t DROP KEY f"),
        ("ALTER TABLE t DROP CONSTRAINT f", "ALTER TABLE t DROP CONSTRAINT f"),
        ("ALTER TABLE t ADD a INT REFERENCES p (x)", "ALTER TABLE t ADD a INT"),
        ("ALTER TABLE t ADD a INT REFERENCES p FIRST, DROP b", "ALTER TABLE t ADD a INT FIRST, DROP b"),
        (
            "ALTER TABLE t ADD a INT NULL CONSTRAINT f REFERENCES d.p (x, y) MATCH FULL ON UPDATE SET NULL"
            " ON DELETE NO ACTION AFTER b",
            "ALTER TABLE t ADD a INT NULL AFTER b",
        ),
        ("ALTER TABLE t ADD a INT CONSTRAINT REFERENCES p (x) ON DELETE CASCADE", "ALTER TABLE t ADD a INT"),
        ("ALTER TABLE t CHANGE a b INT REFERENCES p(x)FIRST", "ALTER TABLE t CHANGE a b INT FIRST"),
        ("ALTER TABLE t MODIFY a INT REFERENCES p (x)", "ALTER TABLE t MODIFY a INT"),
        ("ALTER TABLE t MODIFY `references` INT", "ALTER TABLE t MODIFY `references` INT"),
        ("ALTER TABLE t ADD (a INT REFERENCES p (x), b INT)", "ALTER TABLE t ADD (a INT, b INT)"),
        (
            "ALTER TABLE t ADD COLUMN (FOREIGN KEY (c) REFERENCES p (x), a INT,"
            " CONSTRAINT f FOREIGN KEY (a) REFERENCES p (x))",
            "ALTER TABLE t ADD COLUMN (a INT)",
        ),
        ("ALTER TABLE t ADD (FOREIGN KEY (c) REFERENCES p (x)), DROP b", "ALTER TABLE t DROP b"),
    ],
)
def test_without_references(text: str, rest: str) -> None:
    assert re.sub(r" (?=[,)])", "", unreferenced(text)) == rest


@given(alters())
def test_no_reference_remains(made: tuple[str, list[Case]]) -> None:
    text, cases = made
    rest = unreferenced(text)
    stay = [case for case in cases if case.kind not in (K.ADD_FOREIGN_KEY, K.DROP_FOREIGN_KEY)]
    if not rest:
        assert all(case.kind is K.HOW for case in stay)
        return
    assert [(clause.kind, clause.columns) for clause in altered(rest).clauses] == [
        (case.kind, case.columns) for case in stay
    ]
    assert "REFERENCES" not in rest and len(names(read(rest))) == 1 + sum(case.kind is K.RENAME_TABLE for case in stay)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ALTER TABLE t1 ADD COLUMN A INT", "alter  table `x`.`t2` /* c */ add `a` int -- c"),
        ("ALTER TABLE t DROP COLUMN IF EXISTS a;", "ALTER TABLE IF EXISTS t DROP a"),
        ("ALTER TABLE t CHANGE COLUMN a b INT, MODIFY COLUMN c INT", "ALTER TABLE t CHANGE a b INT, MODIFY c INT"),
        ("ALTER TABLE t ALTER COLUMN a DROP DEFAULT", "ALTER TABLE t ALTER a DROP DEFAULT"),
        ("ALTER ONLINE TABLE t WAIT 3 DROP a, ALGORITHM=COPY, DROP b, LOCK NONE", "ALTER TABLE t DROP a, DROP b"),
        ("ALTER TABLE t LOCK=NONE, DROP a", "ALTER TABLE t DROP a, FORCE"),
        ("ALTER TABLE t ADD b INT /*!50100 PARTITION BY HASH (b) */", "ALTER TABLE t ADD b INT PARTITION BY HASH(b)"),
        ("ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES t (b)", "ALTER TABLE u ADD FOREIGN KEY (a) REFERENCES u (b)"),
        ("CREATE INDEX i ON t (a) ALGORITHM=COPY LOCK NONE", "CREATE INDEX IF NOT EXISTS `I` ON u (`a`)"),
        ("DROP INDEX i ON t WAIT 3", "DROP INDEX IF EXISTS i ON u LOCK = NONE"),
        ("CREATE INDEX i ON t (a)", "ALTER TABLE u ADD INDEX i (a)"),
        (
            "CREATE INDEX i USING HASH ON t (a DESC, b(3)) COMMENT 'x'",
            "ALTER TABLE u ADD KEY i USING HASH (a DESC,b(3)) COMMENT 'x'",
        ),
        ("CREATE UNIQUE INDEX i ON t (a) ALGORITHM=COPY", "ALTER TABLE u ADD UNIQUE i (a), LOCK=NONE"),
        ("CREATE UNIQUE INDEX IF NOT EXISTS i ON t (a)", "ALTER TABLE u ADD UNIQUE KEY i (a)"),
        ("CREATE FULLTEXT INDEX i ON t (a)", "ALTER TABLE u ADD FULLTEXT KEY IF NOT EXISTS i (a)"),
        ("CREATE SPATIAL INDEX i ON t (a)", "ALTER TABLE u ADD SPATIAL INDEX `I` (a)"),
        ("CREATE VECTOR INDEX i ON t (a)", "ALTER TABLE u ADD VECTOR KEY i (a)"),
        ("DROP INDEX i ON t", "ALTER TABLE u DROP KEY IF EXISTS i"),
        ("DROP INDEX i ON t LOCK=NONE", "ALTER TABLE u DROP INDEX i, ALGORITHM=INPLACE"),
        ("DROP INDEX `on` ON t", "ALTER TABLE u DROP KEY `on`"),
        ("CREATE INDEX `index` ON t (`key`)", "ALTER TABLE u ADD KEY `index` (`key`)"),
        ("ALTER TABLE t RENAME KEY a TO b", "ALTER TABLE t RENAME INDEX a TO b"),
        (
            "ALTER TABLE t ADD CONSTRAINT c UNIQUE KEY (a), DROP KEY d",
            "ALTER TABLE t ADD CONSTRAINT c UNIQUE (a), DROP INDEX d",
        ),
        ("ALTER TABLE t ADD CONSTRAINT UNIQUE INDEX (a)", "ALTER TABLE t ADD CONSTRAINT UNIQUE (a)"),
        (
            "ALTER TABLE t ADD (a INT, KEY (a), UNIQUE INDEX u (a))",
            "ALTER TABLE t ADD (a INT, INDEX (a), UNIQUE u (a))",
        ),
        ("TRUNCATE t", "TRUNCATE TABLE u NOWAIT"),
        ("DROP TABLE t WAIT 5", "DROP TABLE IF EXISTS u"),
        ("RENAME TABLE t TO v", "RENAME TABLE IF EXISTS u NOWAIT TO V"),
        ("CREATE TABLE t (a INT)", "CREATE TABLE IF NOT EXISTS d.u(`A` int)"),
        ("CREATE DATABASE X", "CREATE DATABASE IF NOT EXISTS `x`"),
    ],
)
def test_equal_statements_have_one_normal_form(one: str, other: str) -> None:
    assert form(one) == form(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ALTER TABLE t ADD a INT", "ALTER TABLE t ADD b INT"),
        ("ALTER TABLE t ADD a INT, ADD b INT", "ALTER TABLE t ADD b INT, ADD a INT"),
        ("ALTER TABLE t COMMENT 'x'", "ALTER TABLE t COMMENT 'X'"),
        ("ALTER TABLE t ADD `index` INT", "ALTER TABLE t ADD INDEX int"),
        ("ALTER TABLE t ADD `a b` INT", "ALTER TABLE t ADD a b INT"),
        ("ALTER TABLE t ADD a INT DEFAULT 1", "ALTER TABLE t ADD a INT DEFAULT `1`"),
        ("ALTER TABLE t RENAME COLUMN a TO b", "ALTER TABLE t RENAME INDEX a TO b"),
        ("ALTER TABLE t DROP CHECK c", "ALTER TABLE t DROP CONSTRAINT c"),
        ("ALTER TABLE t RENAME u", "ALTER TABLE t RENAME v"),
        ("CREATE INDEX i ON t (a)", "ALTER TABLE t ADD UNIQUE i (a)"),
        ("CREATE UNIQUE INDEX i ON t (a)", "ALTER TABLE t ADD CONSTRAINT i UNIQUE (a)"),
        ("CREATE OR REPLACE INDEX i ON t (a)", "ALTER TABLE t ADD INDEX i (a)"),
        ("CREATE INDEX i ON t (a)", "ALTER TABLE t ADD INDEX i (a DESC)"),
        ("CREATE INDEX i USING HASH ON t (a)", "ALTER TABLE t ADD INDEX i (a)"),
        ("DROP INDEX i ON t", "ALTER TABLE t DROP i"),
        ("DROP INDEX `primary` ON t", "ALTER TABLE t DROP PRIMARY KEY"),
        ("ALTER TABLE t ADD PRIMARY KEY (a)", "ALTER TABLE t ADD KEY `primary` (a)"),
        ("ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES p (a)", "ALTER TABLE t ADD KEY (a)"),
        ("ALTER TABLE t ADD UNIQUE `key` (a)", "ALTER TABLE t ADD UNIQUE KEY (a)"),
        ("CREATE INDEX i ON t (lock_)", "CREATE INDEX i ON t (wait)"),
        ("CREATE INDEX algorithm ON t (a)", "CREATE INDEX lock_ ON t (a)"),
        ("CREATE TABLE t (algorithm INT, a INT)", "CREATE TABLE t (a INT)"),
        ("RENAME TABLE t TO wait", "RENAME TABLE t TO nowait"),
        ("DROP TABLE t", "DROP TABLE t, u"),
    ],
)
def test_different_statements_have_different_normal_forms(one: str, other: str) -> None:
    assert form(one) != form(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ALTER TABLE t ADD a INT, ADD b INT", "alter table u add column B int, add A int, LOCK=NONE"),
        ("ALTER TABLE t ADD a INT AFTER x, ADD b INT AFTER a", "ALTER TABLE t ADD b INT AFTER a, ADD a INT AFTER x"),
        ("ALTER TABLE t DROP a, MODIFY b INT, CHANGE c d INT", "ALTER TABLE t CHANGE c d INT, DROP a, MODIFY b INT"),
        ("ALTER TABLE t ALTER a SET DEFAULT 1, ADD `key` INT", "ALTER TABLE t ADD `key` INT, ALTER a SET DEFAULT 1"),
        ("ALTER TABLE t ADD (a INT, b INT), DROP c", "ALTER TABLE t DROP c, ADD (a INT, b INT)"),
    ],
)
def test_statements_in_another_order_have_one_form(one: str, other: str) -> None:
    assert unordered_form(one, 0, read(one)) == unordered_form(other, 0, read(other))


@pytest.mark.parametrize(
    "clauses",
    [
        ("ADD KEY (a)", "ADD KEY (a, b)"),
        ("ADD a INT UNIQUE", "ADD b INT UNIQUE"),
        ("ADD a INT CHECK (a > 1)", "ADD b INT CHECK (b > 1)"),
        ("RENAME COLUMN a TO b", "RENAME COLUMN b TO a"),
        ("CHANGE a b INT", "ADD a INT"),
        ("DROP a", "ADD A INT"),
        ("CONVERT TO CHARACTER SET utf8mb4", "MODIFY a VARCHAR(5)"),
        ("ADD a INT", "COMMENT 'x'"),
    ],
)
def test_the_order_of_clauses_counts_where_the_result_may_depend_on_it(clauses: tuple[str, str]) -> None:
    one, other = (f"ALTER TABLE t {', '.join(each)}" for each in (clauses, clauses[::-1]))
    assert unordered_form(one, 0, read(one)) == form(one) != form(other) == unordered_form(other, 0, read(other))


@pytest.mark.parametrize("text", ["CREATE INDEX i ON t (a)", "ALTER TABLE t ADD a INT", "TRUNCATE t", "DROP TABLE t"])
def test_a_single_clause_has_its_normal_form(text: str) -> None:
    assert unordered_form(text, 0, read(text)) == form(text)


def test_normal_form() -> None:
    text = "ALTER TABLE `D`.`t` ADD COLUMN `Col``x` VARCHAR(9) DEFAULT 'It''s', ADD KEY `Key` (Col.a)"
    assert form(text) == "alter table ? add `col``x` varchar ( 9 ) default 'It''s' , add index `key` ( col . a )"
    assert form('ALTER TABLE "t" DROP "A"', ANSI_QUOTES) == "alter table ? drop a"
    assert form("CREATE INDEX i ON t (wait, nowait)") == "alter table ? add index i ( wait , nowait )"
    assert form("CREATE TABLE t SELECT wait FROM x") == "create table ? select wait from x"
    assert form("DROP TABLE a, b.c") == "drop table ? , ?"
    assert form("RENAME TABLE a TO b, c TO d.e") == "rename table ? to b , ? to d . e"


@given(alters(), NAME, NAME)
def test_the_normal_form_is_independent_of_the_table(made: tuple[str, list[Case]], schema: str, table: str) -> None:
    text, _ = made
    new = rename_tables(text, read(text), lambda _, name: (schema, table) if name == "t" else None)
    assert normal_form(new, 0, read(new)) == form(text)
