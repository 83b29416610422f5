"""The data risks that a dry run lists."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from shardmerge.worker.core.table import Column, Table, ValueKind
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.dry_run.model import statement_for
from shardmerge.worker.ddl.dry_run.risks import Change, listed, risks, session_risk
from shardmerge.worker.ddl.sql.statement import parse_ddl
from shardmerge.worker.ddl.sql.table_definition import TableDefinition
from shardmerge.worker.ddl.sql.target_statement import Changing
from tests.unit.worker.ddl.schema_join.join_model import shape_of

ID, KEY = "`id` bigint NOT NULL", "PRIMARY KEY (`id`)"
A, B = "`a` int DEFAULT NULL", "`b` int NOT NULL DEFAULT 5"


def shape(text: str) -> TableDefinition:
    return shape_of(ID, *filter(None, map(str.strip, text.split(";"))), KEY)


@dataclass(frozen=True, slots=True)
class Case:
    """The items of each table, separated by ";", in addition to an id as primary key."""

    ddl: str
    before: str
    after: str
    target: str
    goal: str
    others: tuple[str, ...] = ()
    strict: bool = True

    def risks(self) -> tuple[str, ...]:
        ddl = parse_ddl(self.ddl, "d", 0)
        assert isinstance(ddl, Changing)
        others = {f"o{at}": shape(each) for at, each in enumerate(self.others)}
        before, after, target, goal = map(shape, (self.before, self.after, self.target, self.goal))
        return risks(Change("mine", ddl, before, after, target, goal, others, self.strict))


REFUSED = "the target refuses the statement if a value there does not fit"
COPIES = "the target copies the whole table for the new type of `a`; writes to it wait meanwhile"
CASES: dict[str, tuple[Case, tuple[str, ...]]] = {
    "nothing": (Case("ALTER TABLE t COMMENT 'x'", A, A, A, A, (A,)), ()),
    "the last drops": (
        Case("ALTER TABLE t DROP a", A, "", A, "", ("",)),
        ("column `a` leaves the target, with the values of all its rows there",),
    ),
    "the first drops": (
        Case("ALTER TABLE t DROP b", B, "", B, B, (B,)),
        ("the target keeps column `b` for others: rows of mine that are there keep their values, new rows get "
         "the default 5",),
    ),
    "dropped and added again": (
        Case("ALTER TABLE t DROP a, ADD a INT", A, A, A, f"{A}; `z` int DEFAULT NULL", (A,)),
        ("column `a` leaves the target, with the values of all its rows, and is added again",),
    ),
    "the first adds": (
        Case("ALTER TABLE t ADD b INT NOT NULL DEFAULT 5", "", B, "", B, ("", B, "")),
        ("rows of o0, o2 have the default 5 in column `b` until these have it",),
    ),
    "the first adds, NULL": (
        Case("ALTER TABLE t ADD a INT", "", A, "", A, ("",)),
        ("rows of o0 have the default NULL in column `a` until these have it",),
    ),
    "all add at once": (Case("ALTER TABLE t ADD a INT", "", A, "", A, (A, A)), ()),
    "a later one adds": (Case("ALTER TABLE t ADD a INT", "", A, A, A, ("", A)), ()),
    "renamed": (Case("ALTER TABLE t RENAME COLUMN a TO c", A, "`c` int DEFAULT NULL", A, "`c` int DEFAULT NULL"), ()),
    "wider": (Case("ALTER TABLE t MODIFY a BIGINT", A, "`a` bigint", A, "`a` bigint"), (COPIES,)),
    "longer": (
        Case("ALTER TABLE t MODIFY a VARCHAR(20)", "`a` varchar(10)", "`a` varchar(20)", "`a` varchar(10)",
             "`a` varchar(20)"),
        (),
    ),
    "longer, of another type": (
        Case("ALTER TABLE t MODIFY a TEXT", "`a` varchar(9)", "`a` text", "`a` varchar(9)", "`a` text"),
        (),
    ),
    "narrower": (
        Case("ALTER TABLE t MODIFY a SMALLINT", A, "`a` smallint", A, "`a` smallint"),
        (f"column `a` changes from int to smallint: {REFUSED}", COPIES),
    ),
    "narrower, as the source has it": (
        Case("ALTER TABLE t MODIFY a SMALLINT", A, "`a` smallint", A, "`a` smallint", strict=False),
        (f"column `a` changes from int to smallint: {REFUSED}, or cuts the value where the source's sql_mode is not "
         "strict", COPIES),
    ),
    "narrower under another name": (
        Case("ALTER TABLE t CHANGE a c SMALLINT", A, "`c` smallint", A, "`c` smallint"),
        (f"column `c` changes from int to smallint: {REFUSED}", COPIES.replace("`a`", "`c`")),
    ),
    "required": (
        Case("ALTER TABLE t MODIFY a INT NOT NULL", A, "`a` int NOT NULL", A, "`a` int NOT NULL"),
        ("column `a` becomes NOT NULL: the target refuses the statement if a row of any shard table has NULL there",),
    ),
    "comes required": (
        Case("ALTER TABLE t ADD a INT NOT NULL", "", "`a` int NOT NULL", "", "`a` int NOT NULL"),
        ("column `a` is added NOT NULL without a default: rows get the zero value of its type",),
    ),
    "unique": (
        Case("ALTER TABLE t ADD UNIQUE u (a)", A, f"{A}; UNIQUE KEY `u` (`a`)", A, f"{A}; UNIQUE KEY `u` (`a`)", (A,)),
        ("UNIQUE KEY `u` (`a`) spans the rows of all shard tables: the target refuses it if two of them have equal "
         "values",),
    ),
    "unique, alone": (
        Case("ALTER TABLE t ADD UNIQUE u (a)", A, f"{A}; UNIQUE KEY `u` (`a`)", A, f"{A}; UNIQUE KEY `u` (`a`)"), (),
    ),
    "another character set": (
        Case("ALTER TABLE t CONVERT TO CHARACTER SET latin1", "`a` varchar(9)",
             "`a` varchar(9) CHARACTER SET latin1 COLLATE latin1_bin", "`a` varchar(9)",
             "`a` varchar(9) CHARACTER SET latin1 COLLATE latin1_bin"),
        ("column `a` changes from varchar(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin to varchar(9) CHARACTER SET "
         f"latin1 COLLATE latin1_bin: {REFUSED}", COPIES),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_listed_risks(name: str) -> None:
    case, expected = CASES[name]
    assert case.risks() == expected


def test_possible_in_place_changes_are_not_called_a_copy() -> None:
    case, _ = CASES["wider"]
    options = "ENGINE=InnoDB ROW_FORMAT=REDUNDANT"
    ddl = parse_ddl(case.ddl, "d", 0)
    assert isinstance(ddl, Changing)
    target, goal = (replace(shape(each), options=options) for each in (case.target, case.goal))
    assert risks(Change("mine", ddl, shape(case.before), shape(case.after), target, goal, {}, strict=True)) == ()


def test_many_names_are_cut() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed(list("abcdefg")) == "a, b, c, d, e and 2 more"


@pytest.mark.parametrize(
    ("clause", "mysql", "mariadb"),
    [
        ("MODIFY c TIMESTAMP NOT NULL", True, False),  # MariaDB stops the task in every session
        ("MODIFY c TIMESTAMP", True, True),
        ("ADD n TIMESTAMP", True, True),
        ("ADD n TIMESTAMP DEFAULT NOW()", False, False),
        ("MODIFY c TIMESTAMP NULL", False, False),
        ("ADD n INT", False, False),
    ],
)
def test_what_depends_on_the_session_of_the_source(clause: str, *, mysql: bool, mariadb: bool) -> None:
    columns = (Column("c", ValueKind.DATETIME, "datetime", nullable=True),)
    plan = TablePlan(3, "s1", Table("d", "t", columns, (), "", (), False, "InnoDB"), "all", "t", (), ())
    statement, ddl = statement_for(f"ALTER TABLE d.t {clause}", plan)
    for is_mariadb, depends in ((False, mysql), (True, mariadb)):
        found = session_risk(statement, ddl, plan, is_mariadb=is_mariadb)
        assert bool(found) is depends
        assert all("explicit_defaults_for_timestamp" in each and "at s1" in each for each in found)
