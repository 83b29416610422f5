"""What of a statement is for merged tables."""

from __future__ import annotations

import pytest

from shardmerge.worker.core.position import RelayOffset, SourcePosition
from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.ddl.sql.statement import parse_ddl
from shardmerge.worker.ddl.sql.target_statement import (
    Changing,
    ReplacedDates,
    changed_columns,
    for_table,
    names_other_constraint,
    nondeterministic_columns,
    replaced_dates,
    target_statement,
    time_dependent_columns,
)
from shardmerge.worker.relay.model import Statement

_BEFORE = Table(
    "d",
    "t",
    (Column("c", ValueKind.DATETIME, "datetime", True), Column("whole", ValueKind.DATETIME, "datetime", False)),
    (),
    "",
    (),
    False,
    "InnoDB",
)


def made(text: str, sql_mode: int | None = None) -> Statement:
    begin = RelayOffset(1, 4)
    return Statement(begin, begin, begin, SourcePosition("mysql-bin.000001", 4), "d", text, sql_mode)


def parsed(statement: Statement) -> Changing:
    ddl = parse_ddl(statement.text, statement.schema, statement.sql_mode)
    assert isinstance(ddl, Changing)
    return ddl


@pytest.mark.parametrize(
    ("text", "merged"),
    [
        ("ALTER TABLE t ADD n INT", "ALTER TABLE t ADD n INT"),
        ("ALTER TABLE t ENGINE=MyISAM", ""),
        ("ALTER TABLE t AUTO_INCREMENT = 7", ""),
        ("ALTER TABLE t ENGINE=InnoDB, ADD n INT, ROW_FORMAT=COMPACT", "ALTER TABLE t ADD n INT"),
        ("ALTER TABLE t COMMENT 'x', ENGINE=InnoDB", "ALTER TABLE t COMMENT 'x'"),
        ("ALTER TABLE t DEFAULT CHARSET latin1", "ALTER TABLE t CHARSET latin1"),
        (
            "ALTER TABLE t ENGINE=Aria CHARSET latin1 ROW_FORMAT=PAGE, ADD n INT",
            "ALTER TABLE t CHARSET latin1, ADD n INT",
        ),
        ("ALTER TABLE t COMMENT='x' ENGINE=Aria TRANSACTIONAL=1", "ALTER TABLE t COMMENT='x'"),
        ("ALTER TABLE t ENGINE=Aria TRANSACTIONAL=1, ADD n INT", "ALTER TABLE t ADD n INT"),
        ("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4", "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4"),
        ("ALTER TABLE t PARTITION BY HASH (id) PARTITIONS 3", ""),
        ("ALTER TABLE t ADD n INT PARTITION BY HASH (id)", "ALTER TABLE t ADD n INT"),
        ("ALTER TABLE t REMOVE PARTITIONING", ""),
        ("ALTER TABLE t FORCE, LOCK=NONE", ""),
        ("ALTER TABLE t ALGORITHM=COPY, DROP n, LOCK=SHARED", "ALTER TABLE t DROP n"),
        ("ALTER TABLE t RENAME TO u", ""),
        ("ALTER TABLE t RENAME TO u, DROP n", "ALTER TABLE t DROP n"),
        ("ALTER TABLE t ADD FOREIGN KEY (n) REFERENCES p (id)", ""),
        ("ALTER TABLE t ADD n INT REFERENCES p (id)", "ALTER TABLE t ADD n INT"),
        ("ALTER TABLE t DROP FOREIGN KEY f, DROP n", "ALTER TABLE t DROP n"),
        ("ALTER TABLE t ORDER BY n", ""),
        ("ALTER TABLE t DROP KEY known, DROP KEY strange", "ALTER TABLE t DROP KEY known"),
        ("ALTER TABLE t DROP KEY strange", ""),
        ("ALTER TABLE t RENAME KEY strange TO other", ""),
        ("ALTER TABLE t DROP KEY KNOWN, DROP KEY `PRIMARY`", "ALTER TABLE t DROP KEY KNOWN, DROP KEY `PRIMARY`"),
        ("DROP INDEX strange ON t", ""),
        ("DROP INDEX Known ON t", "DROP INDEX Known ON t"),
        ("CREATE INDEX i ON t (n)", "CREATE INDEX i ON t (n)"),
        ("ALTER TABLE t ALTER Auto SET DEFAULT 7", ""),
        ("ALTER TABLE t ALTER auto DROP DEFAULT, ALTER n DROP DEFAULT", "ALTER TABLE t ALTER n DROP DEFAULT"),
    ],
)
def test_target_statement(text: str, merged: str) -> None:
    statement = made(text)
    assert target_statement(statement, parsed(statement), ["known"], {"auto"}) == merged


def test_without_a_list_every_index_is_known() -> None:
    statement = made("ALTER TABLE t DROP KEY strange")
    assert target_statement(statement, parsed(statement)) == statement.text


@pytest.mark.parametrize(
    ("text", "elsewhere"),
    [
        ("ALTER TABLE t ADD n INT", "ALTER TABLE `m`.`x``y` ADD n INT"),
        ("ALTER TABLE d . `t` ADD n INT", "ALTER TABLE `m`.`x``y` ADD n INT"),
        ("CREATE INDEX t ON t (t)", "CREATE INDEX t ON `m`.`x``y` (t)"),
        ("DROP INDEX t ON d.t", "DROP INDEX t ON `m`.`x``y`"),
    ],
)
def test_for_table(text: str, elsewhere: str) -> None:
    assert for_table(text, made(text), TargetTable("m", "x`y")) == elsewhere


def test_for_table_uses_the_statements_sql_mode() -> None:
    text = 'ALTER TABLE "t" ADD "t" INT'
    assert for_table(text, made(text, 4), TargetTable("m", "u")) == 'ALTER TABLE `m`.`u` ADD "t" INT'


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("ALTER TABLE t DROP CHECK c", True),
        ("ALTER TABLE t DROP CONSTRAINT c", True),
        ("ALTER TABLE t DROP CONSTRAINT U", False),
        ("ALTER TABLE t ALTER CHECK c NOT ENFORCED", True),
        ("ALTER TABLE t ADD CONSTRAINT c CHECK (n > 0)", False),
        ("ALTER TABLE t DROP KEY c", False),
        ("DROP INDEX c ON t", False),
    ],
)
def test_names_other_constraint(text: str, names: bool) -> None:
    assert names_other_constraint(parsed(made(text)), ["u"]) is names


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ("ALTER TABLE t ADD a INT, DROP COLUMN B, CHANGE c d INT, MODIFY `E` INT", {"b", "c", "e"}),
        ("ALTER TABLE t RENAME COLUMN a TO b, ALTER c SET DEFAULT 1, ALTER d DROP DEFAULT", {"a", "c", "d"}),
        ("ALTER TABLE t ADD KEY (a)", set[str]()),
        ("CREATE INDEX i ON t (a)", set[str]()),
    ],
)
def test_changed_columns(text: str, columns: set[str]) -> None:
    assert changed_columns(parsed(made(text))) == columns


@pytest.mark.parametrize(
    ("definition", "drawn"),
    [
        ("a INT DEFAULT 5", False),
        ("a UUID DEFAULT uuid()", True),
        ("a VARCHAR(40) DEFAULT (CONCAT('x', UUID()))", True),
        ("a VARCHAR(40) DEFAULT 'uuid()'", False),
        ("a INT COMMENT 'rand()' DEFAULT (1)", False),
        ("a FLOAT NOT NULL DEFAULT (rand() * 3)", True),
        ("a INT DEFAULT (NEXT VALUE FOR s)", True),
        ("a INT DEFAULT NEXTVAL(s)", True),
        ("a INT DEFAULT NEXT VALUE FOR d.s", True),
        ("a INT DEFAULT PREVIOUS VALUE FOR s", True),
        ("a INT DEFAULT s.nextval", True),
        ("a VARCHAR(9) DEFAULT (@@hostname)", True),
        ("a VARCHAR(9) DEFAULT CURRENT_USER", True),
        ("a DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6)", False),
        ("a INT AUTO_INCREMENT PRIMARY KEY", True),
        ("a INT REFERENCES user (id)", False),
        ("uuid INT DEFAULT 1", False),
        ("(b INT, a CHAR(36) DEFAULT (uuid()), c INT)", True),
        ("a INT AS (b + 1) STORED", False),
    ],
)
def test_nondeterministic_default(definition: str, drawn: bool) -> None:
    statement = made(f"ALTER TABLE t ADD x INT, ADD COLUMN {definition}")
    assert nondeterministic_columns(statement, parsed(statement)) == (("a",) if drawn else ())


@pytest.mark.parametrize(
    ("definition", "explicit", "depends"),
    [
        ("a DATETIME DEFAULT NOW()", True, True),
        ("a DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6)", True, True),
        ("a DATE DEFAULT (CURDATE())", True, True),
        ("a INT DEFAULT (1 + UNIX_TIMESTAMP())", True, True),
        ("(b INT, a DATETIME DEFAULT LOCALTIME, c INT)", True, True),
        ("a DATETIME DEFAULT '2024-01-01'", True, False),
        ("a DATETIME NULL ON UPDATE NOW()", True, False),
        ("a VARCHAR(9) DEFAULT 'now()' COMMENT 'now()'", True, False),
        ("a TIMESTAMP", True, False),
        ("a TIMESTAMP", False, True),
        ("a TIMESTAMP(3) NOT NULL", None, True),
        ("a TIMESTAMP NULL", False, False),
        ("a TIMESTAMP DEFAULT '2024-01-01'", False, False),
        ("timestamp INT, ADD a DATETIME", False, False),
    ],
)
def test_time_dependent_default(definition: str, explicit: bool | None, depends: bool) -> None:
    statement = made(f"ALTER TABLE t ADD x INT, ADD COLUMN {definition}")
    found = time_dependent_columns(statement, parsed(statement), _BEFORE, explicit, is_mariadb=False)
    assert found == (("a",) if depends else ())


@pytest.mark.parametrize(
    ("clause", "mariadb", "explicit", "implicit"),
    [
        ("MODIFY c TIMESTAMP(3) NOT NULL", "c", "", "c"),
        ("CHANGE COLUMN c new TIMESTAMP NOT NULL DEFAULT '2024-01-01'", "new", "", "new"),
        ("MODIFY c TIMESTAMP", "", "", "c"),
        ("MODIFY c TIMESTAMP NULL", "", "", ""),
        ("MODIFY c DATETIME NOT NULL", "", "", ""),
        ("MODIFY whole TIMESTAMP NOT NULL", "", "", ""),
        ("RENAME COLUMN c TO new", "", "", ""),
    ],
)
def test_nulls_that_become_times(clause: str, mariadb: str, explicit: str, implicit: str) -> None:
    statement = made(f"ALTER TABLE t ADD x INT, {clause}")
    ddl = parsed(statement)
    assert time_dependent_columns(statement, ddl, _BEFORE, True, is_mariadb=True) == tuple(filter(None, [mariadb]))
    assert time_dependent_columns(statement, ddl, _BEFORE, True, is_mariadb=False) == tuple(filter(None, [explicit]))
    assert time_dependent_columns(statement, ddl, _BEFORE, False, is_mariadb=False) == tuple(filter(None, [implicit]))


def test_each_column_is_named() -> None:
    text = "ADD a DATETIME DEFAULT NOW(), ADD b INT, ADD (d TIME DEFAULT (CURTIME()), e CHAR(36) DEFAULT (UUID()))"
    statement = made(f"ALTER TABLE t {text}, ADD f INT DEFAULT (RAND())")
    ddl = parsed(statement)
    assert time_dependent_columns(statement, ddl, _BEFORE, True, is_mariadb=True) == ("a", "d")
    assert nondeterministic_columns(statement, ddl) == ("e", "f")


def test_an_existing_column_keeps_its_values() -> None:
    statement = made("ALTER TABLE t MODIFY a CHAR(36) DEFAULT (uuid()), MODIFY id INT AUTO_INCREMENT")
    assert nondeterministic_columns(statement, parsed(statement)) == ()


_LAX, _STRICT, _NO_ZERO_PARTS, _ANY_DAY = 0, 1 << 22, 1 << 23, 1 << 25


@pytest.mark.parametrize(
    ("mode", "replaced"),
    [
        (_LAX, ReplacedDates(days=True, zero_parts=False)),
        (_NO_ZERO_PARTS, ReplacedDates(days=True, zero_parts=True)),
        (_NO_ZERO_PARTS | _ANY_DAY, ReplacedDates(days=False, zero_parts=True)),
        (_ANY_DAY, ReplacedDates(days=False, zero_parts=False)),
        (_STRICT | _NO_ZERO_PARTS, ReplacedDates(days=False, zero_parts=False)),
    ],
)
def test_dates_that_a_copy_replaces(mode: int, replaced: ReplacedDates) -> None:
    statement = made("ALTER TABLE t ENGINE=InnoDB", mode)
    assert replaced_dates(statement, parsed(statement)) == replaced


@pytest.mark.parametrize(
    ("text", "may_copy"),
    [
        ("ALTER TABLE t ADD n INT, DROP m, ADD KEY (a), ALTER b SET DEFAULT 1, ALGORITHM=INPLACE", False),
        ("ALTER TABLE t ADD n INT, ALGORITHM=COPY", True),
        ("ALTER TABLE t ADD n INT AS (m + 1) STORED", True),
        ("ALTER TABLE t MODIFY n BIGINT", True),
        ("ALTER TABLE t ADD n INT, ADD CHECK (n > 1)", True),
        ("ALTER TABLE t PARTITION BY HASH (id)", True),
        ("CREATE INDEX i ON t (n)", False),
        ("CREATE INDEX i ON t (n) ALGORITHM=COPY", True),
    ],
)
def test_statements_that_may_copy_their_table(text: str, may_copy: bool) -> None:
    statement = made(text, _LAX)
    assert bool(replaced_dates(statement, parsed(statement))) is may_copy


def test_an_alter_ignore_does_not_fail_in_a_strict_mode() -> None:
    statement = made("ALTER IGNORE TABLE t ENGINE=InnoDB", _STRICT)
    assert replaced_dates(statement, parsed(statement)).days
