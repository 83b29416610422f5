"""The join of shard tables, rule by rule."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from shardmerge.worker.ddl.schema_join.join import SchemaJoin, join
from shardmerge.worker.ddl.schema_join.model import NotJoinable, ShardSchema
from tests.unit.worker.ddl.schema_join.join_model import altered, shape_of

ID = "`id` bigint NOT NULL"
KEY = "PRIMARY KEY (`id`)"


@dataclass(frozen=True, slots=True)
class Case:
    """The items of each table, separated by ";", in addition to an id as primary key."""

    target: str
    others: tuple[str, ...]
    before: str
    after: str
    dropped: frozenset[str] = frozenset()
    strict: bool = True
    coming: tuple[str, ...] = ()

    def ask(self) -> SchemaJoin | NotJoinable:
        others = [ShardSchema(f"o{at}", shape_of(*items(each))) for at, each in enumerate(self.others)]
        mine = ShardSchema("mine", shape_of(*items(self.before)), self.dropped)
        coming = [ShardSchema(f"o{at}", shape_of(*items(each))) for at, each in enumerate(self.coming)]
        return join(
            shape_of(*items(self.target)),
            others,
            mine,
            shape_of(*items(self.after)),
            strict=self.strict,
            coming=coming,
        )


def items(text: str) -> tuple[str, ...]:
    return (ID, *filter(None, map(str.strip, text.split(";"))), KEY)


A, B = "`a` int DEFAULT NULL", "`b` int NOT NULL DEFAULT 5"
F = "`f` float DEFAULT 0.1"

BIN, CI = "`s` varchar(9) DEFAULT NULL", "`s` varchar(9) COLLATE utf8mb4_general_ci DEFAULT NULL"
OF_CI = "CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"

JOINED: dict[str, tuple[Case, tuple[str, ...]]] = {
    "nothing": (Case(A, (A,), A, A), ()),
    "the first adds": (Case("", ("",), "", A), ("ADD COLUMN `a` int DEFAULT NULL",)),
    "the first adds, NOT NULL with a default": (Case("", ("",), "", B), ("ADD COLUMN `b` int NOT NULL DEFAULT 5",)),
    "the second adds": (Case(A, (A,), "", A), ()),
    "the second adds in other letters": (Case(A, (A,), "", "`A` int DEFAULT NULL"), ()),
    "added between": (Case(B, (B,), B, f"{A}; {B}"), ("ADD COLUMN `a` int DEFAULT NULL AFTER `id`",)),
    "added behind a column that is added": (
        Case(
            "`z` int DEFAULT NULL", ("`z` int DEFAULT NULL",), "`z` int DEFAULT NULL", f"{A}; {B}; `z` int DEFAULT NULL"
        ),
        ("ADD COLUMN `a` int DEFAULT NULL AFTER `id`", "ADD COLUMN `b` int NOT NULL DEFAULT 5 AFTER `a`"),
    ),
    "moved": (Case(f"{A}; {B}", (f"{A}; {B}",), f"{A}; {B}", f"{B}; {A}"), ()),
    "the first drops": (Case(A, (A,), A, ""), ()),
    "the last drops": (Case(A, ("",), A, ""), ("DROP COLUMN `a`",)),
    "the last drops what the target lacks": (Case("", ("",), A, ""), ()),
    "alone, with any definition": (Case("", (), "", "`n` int NOT NULL"), ("ADD COLUMN `n` int NOT NULL",)),
    "alone, asked again": (Case("`n` int NOT NULL", (), "", "`n` int NOT NULL"), ()),
    "widened": (Case(A, (A,), A, "`a` bigint DEFAULT NULL"), ("MODIFY COLUMN `a` bigint DEFAULT NULL",)),
    "widened below the others": (
        Case("`a` bigint DEFAULT NULL", ("`a` bigint DEFAULT NULL",), "`a` tinyint DEFAULT NULL", A),
        (),
    ),
    "a display width": (Case(A, (A,), A, "`a` int(5) DEFAULT NULL"), ()),
    "the last narrows": (
        Case("`a` bigint DEFAULT NULL", (A,), "`a` bigint DEFAULT NULL", A),
        ("MODIFY COLUMN `a` int DEFAULT NULL",),
    ),
    "the first narrows": (
        Case("`a` bigint DEFAULT NULL", ("`a` bigint DEFAULT NULL",), "`a` bigint DEFAULT NULL", A),
        (),
    ),
    "the last narrows what the operator has widened": (
        Case("`a` bigint DEFAULT NULL", (A,), A, "`a` smallint DEFAULT NULL"),
        (),
    ),
    "FLOAT widened to DOUBLE": (
        Case(F, (F,), F, "`f` double DEFAULT 0.1"),
        ("MODIFY COLUMN `f` double DEFAULT 0.1",),
    ),
    "FLOAT widened to DOUBLE by the last": (
        Case("`f` double DEFAULT 0.1", ("`f` double DEFAULT 0.1",), F, "`f` double DEFAULT 0.1"),
        (),
    ),
    "FLOAT added where the target has DOUBLE": (
        Case("`f` double DEFAULT 1.5", ("`f` double DEFAULT 1.5", ""), "", "`f` float DEFAULT 1.5"),
        (),
    ),
    "put together": (
        Case(
            "`a` decimal(8,1) DEFAULT NULL",
            ("`a` decimal(8,1) DEFAULT NULL",),
            "`a` decimal(5,1) DEFAULT NULL",
            "`a` decimal(7,3) DEFAULT NULL",
        ),
        ("MODIFY COLUMN `a` decimal(10,3) NULL DEFAULT NULL",),
    ),
    "a default printed with more digits": (
        Case(
            "`a` decimal(6,2) NOT NULL DEFAULT 1.50",
            ("`a` decimal(6,2) NOT NULL DEFAULT 1.50",),
            "",
            "`a` decimal(5,1) NOT NULL DEFAULT 1.5",
        ),
        (),
    ),
    "added wider": (Case(A, (A, ""), "", "`a` bigint DEFAULT NULL"), ("MODIFY COLUMN `a` bigint DEFAULT NULL",)),
    "nullable by the first": (Case(B, (B,), B, "`b` int DEFAULT 5"), ("MODIFY COLUMN `b` int DEFAULT 5",)),
    "NOT NULL by the first": (Case("`b` int DEFAULT 5", ("`b` int DEFAULT 5",), "`b` int DEFAULT 5", B), ()),
    "NOT NULL by the last": (
        Case("`b` int DEFAULT 5", (B,), "`b` int DEFAULT 5", B),
        ("MODIFY COLUMN `b` int NOT NULL DEFAULT 5",),
    ),
    "NOT NULL by the last that has it": (Case("`b` int DEFAULT 5", (B, ""), "`b` int DEFAULT 5", B), ()),
    "NOT NULL added by the last": (
        Case("`b` int DEFAULT 5", (B,), "", B),
        ("MODIFY COLUMN `b` int NOT NULL DEFAULT 5",),
    ),
    "NOT NULL, but for the third": (Case("`b` int DEFAULT 5", (B, "`b` int DEFAULT 5"), "`b` int DEFAULT 5", B), ()),
    "narrower, but for the third": (
        Case("`a` bigint DEFAULT NULL", (A, "`a` bigint DEFAULT NULL"), "`a` bigint DEFAULT NULL", A),
        (),
    ),
    "a default, but for the third": (Case(B, ("`b` int NOT NULL DEFAULT 6", B), B, "`b` int NOT NULL DEFAULT 6"), ()),
    "a comment, but for the third": (Case(A, (f"{A} COMMENT 'x'", A), A, f"{A} COMMENT 'x'"), ()),
    "a unique index, but for the third": (
        Case(A, (f"{A}; UNIQUE KEY `u` (`a`)", A), A, f"{A}; UNIQUE KEY `u` (`a`)"),
        (),
    ),
    "an index dropped, but for the third": (
        Case(f"{A}; KEY `k` (`a`)", (A, f"{A}; KEY `k` (`a`)"), f"{A}; KEY `k` (`a`)", A),
        (),
    ),
    "nullable by the operator": (
        Case("`b` int DEFAULT 5", (B,), B, "`b` bigint NOT NULL DEFAULT 5"),
        ("MODIFY COLUMN `b` bigint NULL DEFAULT 5",),
    ),
    "without a default, nullable by the first": (
        Case("`n` int NOT NULL", ("`n` int NOT NULL",), "`n` int NOT NULL", "`n` int DEFAULT NULL"),
        ("MODIFY COLUMN `n` int DEFAULT NULL",),
    ),
    "without NULL as a default, NOT NULL by the last": (
        Case(A, ("`a` int NOT NULL",), A, "`a` int NOT NULL DEFAULT 3"),
        ("MODIFY COLUMN `a` int NOT NULL",),
    ),
    "a default of the first": (Case(B, (B,), B, "`b` int NOT NULL DEFAULT 6"), ()),
    "a default of the last": (
        Case(B, ("`b` int NOT NULL DEFAULT 6",), B, "`b` int NOT NULL DEFAULT 6"),
        ("MODIFY COLUMN `b` int NOT NULL DEFAULT 6",),
    ),
    "the current time, by the last": (
        Case(
            "`a` datetime NOT NULL",
            ("`a` datetime NOT NULL DEFAULT current_timestamp()",),
            "`a` datetime NOT NULL",
            "`a` datetime NOT NULL DEFAULT current_timestamp()",
        ),
        ("MODIFY COLUMN `a` datetime NOT NULL DEFAULT current_timestamp()",),
    ),
    "a comment of the first": (Case(A, (A,), A, f"{A} COMMENT 'x'"), ()),
    "a comment of the last": (
        Case(A, (f"{A} COMMENT 'x'",), A, f"{A} COMMENT 'x'"),
        (f"MODIFY COLUMN {A} COMMENT 'x'",),
    ),
    "a member": (
        Case(
            "`e` enum('a') DEFAULT NULL",
            ("`e` enum('a') DEFAULT NULL",),
            "`e` enum('a') DEFAULT NULL",
            "`e` enum('a','b') DEFAULT NULL",
        ),
        ("MODIFY COLUMN `e` enum('a','b') CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL",),
    ),
    "what the operator added stays": (Case(f"{A}; `x` int DEFAULT 1; KEY `x` (`x`)", (A,), A, ""), ()),
    "what the operator widened stays": (Case("`a` bigint DEFAULT 7", (A,), A, f"{A} COMMENT 'x'"), ()),
    "MariaDB's JSON": (
        Case("", ("",), "", "`j` longtext COLLATE utf8mb4_bin DEFAULT NULL CHECK (json_valid(`j`))"),
        ("ADD COLUMN `j` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL CHECK (json_valid(`j`))",),
    ),
    "an index by the first": (Case(A, (A,), A, f"{A}; KEY `k` (`a`)"), ("ADD KEY `k` (`a`)",)),
    "an index by the second": (Case(f"{A}; KEY `k` (`a`)", (f"{A}; KEY `k` (`a`)",), A, f"{A}; KEY `K` (`A`)"), ()),
    "an index dropped by the first": (
        Case(f"{A}; KEY `k` (`a`)", (f"{A}; KEY `k` (`a`)",), f"{A}; KEY `k` (`a`)", A),
        (),
    ),
    "an index dropped by the last": (Case(f"{A}; KEY `k` (`a`)", (A,), f"{A}; KEY `k` (`a`)", A), ("DROP INDEX `k`",)),
    "an index of the operator, by another definition": (
        Case(f"{A}; KEY `k` (`a`,`id`)", (A,), f"{A}; KEY `k` (`a`)", A),
        (),
    ),
    "an index changed, of no other shard": (
        Case(f"{A}; KEY `k` (`a`)", (A,), f"{A}; KEY `k` (`a`)", f"{A}; KEY `k` (`a`,`id`)"),
        ("DROP INDEX `k`", "ADD KEY `k` (`a`,`id`)"),
    ),
    "an index, another definition elsewhere": (
        Case(f"{A}; KEY `k` (`id`)", (f"{A}; KEY `k` (`id`)",), A, f"{A}; KEY `k` (`a`)"),
        (),
    ),
    "an index, another definition at the target": (
        Case(f"{A}; KEY `k` (`id`)", (A,), A, f"{A}; KEY `k` (`a`)"),
        (),
    ),
    "an index changed, others have it": (
        Case(f"{A}; KEY `k` (`a`)", (f"{A}; KEY `k` (`a`)",), f"{A}; KEY `k` (`a`)", f"{A}; KEY `k` (`id`)"),
        (),
    ),
    "an index changed back, others have it": (
        Case(f"{A}; KEY `k` (`a`)", (f"{A}; KEY `k` (`a`)",), f"{A}; KEY `k` (`id`)", f"{A}; KEY `k` (`a`)"),
        (),
    ),
    "an index changed by the last": (
        Case(f"{A}; KEY `k` (`a`)", (f"{A}; KEY `k` (`id`)",), f"{A}; KEY `k` (`a`)", f"{A}; KEY `k` (`id`)"),
        ("DROP INDEX `k`", "ADD KEY `k` (`id`)"),
    ),
    "an index dropped by the last that has its definition": (
        Case(f"{A}; KEY `k` (`a`)", (f"{A}; KEY `k` (`id`)",), f"{A}; KEY `k` (`a`)", A),
        ("DROP INDEX `k`", "ADD KEY `k` (`id`)"),
    ),
    "an index dropped, a parked one will have it": (
        Case(f"{A}; KEY `k` (`a`)", (A,), f"{A}; KEY `k` (`a`)", A, coming=(f"{A}; KEY `k` (`a`)",)),
        (),
    ),
    "dropped, a parked one will drop it too": (Case(A, (A,), A, "", coming=("",)), ()),
    "dropped, a parked one will have it": (Case(A, ("",), A, "", coming=(A,)), ()),
    "added, a parked one changes another column": (
        Case(A, (A,), A, f"{A}; {B}", coming=("`c` int DEFAULT NULL",)),
        ("ADD COLUMN `b` int NOT NULL DEFAULT 5",),
    ),
    "narrower, a parked one will be wider": (
        Case("`a` bigint DEFAULT NULL", (A,), "`a` bigint DEFAULT NULL", A, coming=("`a` bigint DEFAULT NULL",)),
        (),
    ),
    "a unique index by the first": (Case(A, (A,), A, f"{A}; UNIQUE KEY `u` (`a`)"), ()),
    "a unique index by the last": (
        Case(A, (f"{A}; UNIQUE KEY `u` (`a`)",), A, f"{A}; UNIQUE KEY `u` (`a`)"),
        ("ADD UNIQUE KEY `u` (`a`)",),
    ),
    "a unique index dropped by the first": (
        Case(f"{A}; UNIQUE KEY `u` (`a`)", (f"{A}; UNIQUE KEY `u` (`a`)",), f"{A}; UNIQUE KEY `u` (`a`)", A),
        ("DROP INDEX `u`",),
    ),
    "a unique index that the target is without": (
        Case(A, (f"{A}; UNIQUE KEY `u` (`a`)",), f"{A}; UNIQUE KEY `u` (`a`)", f"{A}; {B}; UNIQUE KEY `u` (`a`)"),
        ("ADD COLUMN `b` int NOT NULL DEFAULT 5",),
    ),
    "a column with its own unique index, dropped by the first": (
        Case(f"{A}; UNIQUE KEY `u` (`a`)", (f"{A}; UNIQUE KEY `u` (`a`)",), f"{A}; UNIQUE KEY `u` (`a`)", ""),
        ("DROP INDEX `u`",),
    ),
    "a column of an index, dropped by the first": (
        Case(
            f"{A}; {B}; KEY `k` (`a`,`b`)",
            (f"{A}; {B}; KEY `k` (`a`,`b`)",),
            f"{A}; {B}; KEY `k` (`a`,`b`)",
            f"{B}; KEY `k` (`b`)",
        ),
        (),
    ),
    "a column of an index, dropped by the last": (
        Case(
            f"{A}; {B}; KEY `k` (`a`,`b`)",
            (f"{B}; KEY `k` (`b`)",),
            f"{A}; {B}; KEY `k` (`a`,`b`)",
            f"{B}; KEY `k` (`b`)",
        ),
        ("DROP COLUMN `a`",),
    ),
    "an index of which the shard dropped a column before": (
        Case(f"{A}; {B}; KEY `k` (`a`,`b`)", (f"{A}; {B}",), f"{B}; KEY `k` (`b`)", B, frozenset("a")),
        ("DROP INDEX `k`",),
    ),
    "a string that is indexed, longer": (
        Case(
            "`s` varchar(9) DEFAULT NULL; KEY `k` (`s`)",
            ("`s` varchar(9) DEFAULT NULL; KEY `k` (`s`)",),
            "`s` varchar(9) DEFAULT NULL; KEY `k` (`s`)",
            "`s` varchar(768) DEFAULT NULL; KEY `k` (`s`)",
        ),
        ("MODIFY COLUMN `s` varchar(768) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL",),
    ),
    "a text that the second adds in its own collation": (Case(CI, (CI,), "", BIN), ()),
    "a text that the second adds longer, in its own collation": (
        Case(CI, (CI,), "", "`s` varchar(20) DEFAULT NULL"),
        (f"MODIFY COLUMN `s` varchar(20) {OF_CI} DEFAULT NULL",),
    ),
    "a longer text in its own collation": (
        Case(CI, (CI,), BIN, "`s` text DEFAULT NULL"),
        (f"MODIFY COLUMN `s` text {OF_CI} DEFAULT NULL",),
    ),
    "a longer text in its own collation, the other has it": (
        Case(
            "`s` text COLLATE utf8mb4_general_ci DEFAULT NULL", ("`s` text DEFAULT NULL",), BIN, "`s` text DEFAULT NULL"
        ),
        (),
    ),
    "NOT NULL by the last, in its own collation": (
        Case(CI, ("`s` varchar(9) COLLATE utf8mb4_general_ci NOT NULL",), BIN, "`s` varchar(9) NOT NULL"),
        (f"MODIFY COLUMN `s` varchar(9) {OF_CI} NOT NULL",),
    ),
    "a member, in its own collation": (
        Case(
            "`e` enum('a') COLLATE utf8mb4_general_ci DEFAULT NULL",
            ("`e` enum('a') COLLATE utf8mb4_general_ci DEFAULT NULL",),
            "`e` enum('a') DEFAULT NULL",
            "`e` enum('a','b') DEFAULT NULL",
        ),
        (f"MODIFY COLUMN `e` enum('a','b') {OF_CI} DEFAULT NULL",),
    ),
    "a text that is indexed by its first letters": (
        Case(
            "`s` varchar(9) DEFAULT NULL; KEY `k` (`s`(4))",
            ("`s` varchar(9) DEFAULT NULL; KEY `k` (`s`(4))",),
            "`s` varchar(9) DEFAULT NULL; KEY `k` (`s`(4))",
            "`s` text DEFAULT NULL; KEY `k` (`s`(4))",
        ),
        ("MODIFY COLUMN `s` text CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL",),
    ),
}


@pytest.mark.parametrize("name", JOINED)
def test_joined(name: str) -> None:
    case, clauses = JOINED[name]
    found = case.ask()
    assert isinstance(found, SchemaJoin), found
    assert found.clauses == clauses
    behind = altered(items(case.target), found.clauses)
    again = replace(case, target="; ".join(each for each in behind if each not in (ID, KEY)))
    assert again.ask() == replace(found, clauses=(), unique_added=())


REFUSED: dict[str, tuple[Case, str, str, str, bool]] = {
    # what: case, part of the reason, subject, other shard, whether it waits
    "added without a default": (Case("", ("",), "", "`n` int NOT NULL"), "NOT NULL without a default", "n", "o0", True),
    "the collation by the first": (Case(CI, (CI,), BIN, CI), "character set or collation differ", "s", "", True),
    "another collation than the target's by the first": (
        Case(CI, (CI,), CI, BIN),
        "character set or collation differ",
        "s",
        "",
        True,
    ),
    "added in another character set": (
        Case(CI, (CI,), "", "`s` varchar(9) CHARACTER SET latin1 DEFAULT NULL"),
        "character set or collation differ",
        "s",
        "o0",
        False,
    ),
    "added with numbers": (
        Case("", ("",), "", "`n` int NOT NULL AUTO_INCREMENT; UNIQUE KEY `n` (`n`)"),
        "AUTO_INCREMENT",
        "n",
        "o0",
        True,
    ),
    "added generated": (Case("", ("",), "", "`g` int GENERATED ALWAYS AS (`id`) STORED"), "generated", "g", "o0", True),
    "added with an expression": (Case("", ("",), "", "`x` int DEFAULT (1 + 2)"), "no literal", "x", "o0", True),
    "added with the current time": (
        Case("", ("",), "", "`x` datetime DEFAULT CURRENT_TIMESTAMP"),
        "no literal",
        "x",
        "o0",
        True,
    ),
    "added with ON UPDATE": (
        Case("", ("",), "", "`x` datetime DEFAULT NULL ON UPDATE CURRENT_TIMESTAMP"),
        "current time",
        "x",
        "o0",
        True,
    ),
    "added without any default": (Case("", ("",), "", "`x` int"), "no default", "x", "o0", True),
    "added with a condition": (Case("", ("",), "", f"{A} CHECK (`a` > `id`)"), "CHECK", "a", "o0", True),
    "added by another, the target lacks it": (Case("", (A,), "", A), "the target lacks it", "a", "o0", False),
    "dropped, without a default": (
        Case("`n` int NOT NULL", ("`n` int NOT NULL",), "`n` int NOT NULL", ""),
        "NOT NULL without a default",
        "n",
        "o0",
        True,
    ),
    "dropped, the present time": (
        Case(
            "`x` datetime DEFAULT current_timestamp()",
            ("`x` datetime DEFAULT current_timestamp()",),
            "`x` datetime DEFAULT current_timestamp()",
            "",
        ),
        "no literal",
        "x",
        "o0",
        True,
    ),
    "dropped, from a unique index of more columns": (
        Case(
            f"{A}; {B}; UNIQUE KEY `u` (`a`,`b`)",
            (f"{A}; {B}; UNIQUE KEY `u` (`a`,`b`)",),
            f"{A}; {B}; UNIQUE KEY `u` (`a`,`b`)",
            f"{B}; UNIQUE KEY `u` (`b`)",
        ),
        "could have equal keys",
        "a",
        "",
        True,
    ),
    "dropped, from a unique index of the operator": (
        Case(f"{A}; UNIQUE KEY `u` (`a`)", (A,), A, ""),
        "could have equal keys",
        "a",
        "",
        True,
    ),
    "added again": (Case(A, (A,), "", A, frozenset("a")), "another meaning", "a", "o0", False),
    "added again after the other shard tables have left": (
        Case(A, (), "", A, frozenset("a")),
        "another meaning",
        "a",
        "",
        False,
    ),
    "another default": (Case(B, (B,), "", "`b` int NOT NULL DEFAULT 6"), "have its default 5", "b", "o0", False),
    "no default": (Case(B, (B,), "", "`b` int NOT NULL"), "without a default", "b", "o0", False),
    "NULL for a default": (
        Case(B, (B,), "", "`b` int DEFAULT NULL"),
        "those at the source have NULL",
        "b",
        "o0",
        False,
    ),
    "another type": (Case(A, (A,), "", "`a` varchar(9) DEFAULT NULL"), "`a` int DEFAULT NULL", "a", "o0", False),
    "another attribute": (Case(A, (A,), "", f"{A} /*!80023 INVISIBLE */"), "attributes", "a", "o0", False),
    "a column of the operator, by another default": (
        Case(B, ("",), "", "`b` int NOT NULL DEFAULT 6"),
        "default 5",
        "b",
        "",
        False,
    ),
    "another charset": (
        Case(
            "`s` varchar(3) DEFAULT NULL",
            ("`s` varchar(3) DEFAULT NULL",),
            "",
            "`s` varchar(3) CHARACTER SET latin1 DEFAULT NULL",
        ),
        "character set",
        "s",
        "o0",
        False,
    ),
    "a default that some lack": (Case(B, (B, ""), B, "`b` int NOT NULL DEFAULT 6"), "o1 lacks", "b", "o1", False),
    "DOUBLE narrowed to FLOAT": (
        Case(
            "`f` double DEFAULT NULL", ("`f` double DEFAULT NULL",), "`f` double DEFAULT NULL", "`f` float DEFAULT NULL"
        ),
        "narrower",
        "f",
        "",
        True,
    ),
    "a default that FLOAT and DOUBLE hold as two values": (
        Case(F, (F, ""), F, "`f` double DEFAULT 0.1"),
        "o1 lacks",
        "f",
        "o1",
        False,
    ),
    "a default of DOUBLE where the target has it as FLOAT": (
        Case(F, (F, ""), "", "`f` double DEFAULT 0.1"),
        "already have its default",
        "f",
        "o0",
        False,
    ),
    "a type of another family": (Case(A, (A,), A, "`a` varchar(9) DEFAULT NULL"), "no type", "a", "", True),
    "not the others' family": (
        Case("`a` int unsigned DEFAULT NULL", ("`a` int unsigned DEFAULT NULL",), "`a` smallint DEFAULT NULL", A),
        "signed",
        "a",
        "o0",
        True,
    ),
    "not the target's family": (
        Case("`a` int unsigned DEFAULT NULL", ("`a` smallint DEFAULT NULL",), "`a` smallint DEFAULT NULL", A),
        "signed",
        "a",
        "",
        True,
    ),
    "rounded": (
        Case(
            "`a` decimal(6,2) DEFAULT NULL",
            ("`a` decimal(6,1) DEFAULT NULL",),
            "`a` decimal(6,2) DEFAULT NULL",
            "`a` decimal(6,1) DEFAULT NULL",
        ),
        "narrower",
        "a",
        "",
        True,
    ),
    "shorter": (
        Case(
            "`a` varchar(6) DEFAULT NULL",
            ("`a` varchar(5) DEFAULT NULL",),
            "`a` varchar(6) DEFAULT NULL",
            "`a` varchar(5) DEFAULT NULL",
        ),
        "narrower",
        "a",
        "",
        True,
    ),
    "narrower without strictness": (
        Case("`a` bigint DEFAULT NULL", (A,), "`a` bigint DEFAULT NULL", A, strict=False),
        "narrower",
        "a",
        "",
        True,
    ),
    "NOT NULL without strictness": (
        Case("`b` int DEFAULT 5", (B,), "`b` int DEFAULT 5", B, strict=False),
        "replaced NULLs",
        "b",
        "",
        True,
    ),
    "an attribute": (Case(A, (A,), A, f"{A} /*!80023 INVISIBLE */"), "attribute", "a", "", True),
    "a generated column": (
        Case(
            "`g` int GENERATED ALWAYS AS (`id`) STORED",
            ("`g` int GENERATED ALWAYS AS (`id`) STORED",),
            "`g` int GENERATED ALWAYS AS (`id`) STORED",
            "`g` bigint GENERATED ALWAYS AS (`id`) STORED",
        ),
        "generated",
        "g",
        "",
        True,
    ),
    "a column that the target lacks": (
        Case("", (A,), A, "`a` bigint DEFAULT NULL"),
        "the target lacks",
        "a",
        "",
        False,
    ),
    "added, a parked one will have it": (
        Case("", ("",), "", A, coming=("`a` int NOT NULL",)),
        "o0 is parked at a statement after which it has `a` int NOT NULL",
        "a",
        "o0",
        True,
    ),
    "an index on what is a text at the target": (
        Case(
            "`s` text DEFAULT NULL",
            ("`s` text DEFAULT NULL",),
            "`s` varchar(9) DEFAULT NULL",
            "`s` varchar(9) DEFAULT NULL; KEY `k` (`s`)",
        ),
        "too long",
        "k",
        "",
        False,
    ),
    "a string too long for its index": (
        Case(
            "`s` varchar(9) DEFAULT NULL; KEY `k` (`s`)",
            ("`s` varchar(9) DEFAULT NULL; KEY `k` (`s`)",),
            "`s` varchar(9) DEFAULT NULL; KEY `k` (`s`)",
            "`s` varchar(769) DEFAULT NULL",
        ),
        "too long",
        "s",
        "",
        False,
    ),
    "a text with a default": (
        Case(
            "`s` varchar(9) DEFAULT 'x'",
            ("`s` tinytext DEFAULT NULL",),
            "`s` varchar(9) DEFAULT 'x'",
            "`s` varchar(10) DEFAULT 'x'",
        ),
        "not every server",
        "s",
        "",
        False,
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    case, why, subject, other, waits = REFUSED[name]
    found = case.ask()
    assert isinstance(found, NotJoinable), found
    assert why in found.reason
    assert "mine" in found.reason
    assert other in found.reason
    assert (found.subject, found.other, found.waits) == (subject, other, waits)
    assert found.reason.endswith("needs all shard tables: parked as in pessimistic mode") is waits


def test_dropped_columns_of_the_shard() -> None:
    first = Case(f"{A}; {B}", (f"{A}; {B}",), f"{A}; {B}", "").ask()
    assert first == SchemaJoin((), frozenset("ab"), frozenset())
    last = Case(f"{A}; {B}", (A,), B, "", frozenset("a")).ask()
    assert last == SchemaJoin(("DROP COLUMN `b`",), frozenset("a"), frozenset("b"))


def test_the_last_drop_removes_the_column() -> None:
    last = Case(A, ("",), A, "", frozenset("x")).ask()
    assert last == SchemaJoin(("DROP COLUMN `a`",), frozenset("x"), frozenset("a"))


def test_no_narrower_than_values_of_a_shard_that_dropped_it() -> None:
    wide, narrow = "`a` bigint DEFAULT NULL", A
    others = [ShardSchema("o0", shape_of(*items("")), frozenset("a"))]
    own = ShardSchema("mine", shape_of(*items(wide)))
    found = join(shape_of(*items(wide)), others, own, shape_of(*items(narrow)), strict=True)
    assert found == SchemaJoin(())
    others = [ShardSchema("o0", shape_of(*items("")))]
    found = join(shape_of(*items(wide)), others, own, shape_of(*items(narrow)), strict=True)
    assert found == SchemaJoin(("MODIFY COLUMN `a` int DEFAULT NULL",))


def test_a_column_that_was_kept_for_a_parked_table_is_dropped_when_that_table_has_led_back() -> None:
    others = [ShardSchema("o0", shape_of(*items("")), frozenset("a"))]
    for dropped in (frozenset[str](), frozenset("a")):
        mine = ShardSchema("mine", shape_of(*items("")), dropped)
        found = join(shape_of(*items(A)), others, mine, shape_of(*items("")), strict=True)
        assert found == SchemaJoin(("DROP COLUMN `a`",), frozenset(), frozenset("a"))
        coming = [ShardSchema("o0", shape_of(*items(A)))]
        found = join(shape_of(*items(A)), others, mine, shape_of(*items("")), strict=True, coming=coming)
        assert found == SchemaJoin((), dropped)


def test_a_default_may_change_where_the_others_have_dropped_the_column() -> None:
    """Their rows do not get back what the target has."""
    others = [ShardSchema("o0", shape_of(*items("")), frozenset("b"))]
    own = ShardSchema("mine", shape_of(*items(B)))
    for after, clauses in {
        "`b` int NOT NULL DEFAULT 6": ("MODIFY COLUMN `b` int NOT NULL DEFAULT 6",),
        "`b` bigint NOT NULL": ("MODIFY COLUMN `b` bigint NOT NULL DEFAULT 5",),  # o0 writes rows without it
        "`b` int NOT NULL": (),
        "`b` int DEFAULT NULL": ("MODIFY COLUMN `b` int DEFAULT NULL",),
    }.items():
        found = join(shape_of(*items(B)), others, own, shape_of(*items(after)), strict=True)
        assert found == SchemaJoin(clauses)
    nullable = "`b` int DEFAULT NULL"
    own = ShardSchema("mine", shape_of(*items(nullable)))
    after = shape_of(*items("`b` int NOT NULL"))
    assert join(shape_of(*items(nullable)), others, own, after, strict=True) == SchemaJoin(())


def test_a_default_may_change_before_a_parked_table_drops_the_column() -> None:
    for after in ("`b` int NOT NULL DEFAULT 6", "`b` int NOT NULL"):
        assert Case(B, (B,), B, after, coming=("",)).ask() == SchemaJoin(())


def test_unique_indexes_are_reported() -> None:
    found = JOINED["a unique index by the last"][0].ask()
    assert isinstance(found, SchemaJoin)
    assert found.unique_added == ("u",)


def test_the_character_set_is_written_out() -> None:
    text = "`s` varchar(3) DEFAULT 'it''s'"
    mine = shape_of(ID, KEY, collation="latin1_swedish_ci")
    after = shape_of(ID, text, KEY, collation="latin1_swedish_ci")
    found = join(shape_of(ID, KEY), [ShardSchema("o0", mine)], ShardSchema("mine", mine), after, strict=True)
    assert found == SchemaJoin(
        ("ADD COLUMN `s` varchar(3) CHARACTER SET latin1 COLLATE latin1_swedish_ci DEFAULT 'it''s'",)
    )


TABLES = {
    "primary key": (shape_of(ID, A), shape_of(ID, A, "PRIMARY KEY (`a`)")),
    "options": (shape_of(ID), shape_of(ID, options="ENGINE=MyISAM")),
    "checks": (shape_of(ID, "CONSTRAINT `c1` CHECK (`id` > 0)"), shape_of(ID, "CONSTRAINT `c2` CHECK (`id` > 1)")),
}


@pytest.mark.parametrize("what", TABLES)
def test_changes_of_the_whole_table(what: str) -> None:
    before, after = TABLES[what]
    found = join(before, [ShardSchema("o0", before)], ShardSchema("mine", before), after, strict=True)
    assert isinstance(found, NotJoinable)
    assert found.waits
    assert f"the table's {what}" in found.reason


def test_names_of_checks_do_not_count() -> None:
    before, after = (shape_of(ID, f"CONSTRAINT `{name}` CHECK (`id` > 0)") for name in "ab")
    assert join(before, [], ShardSchema("mine", before), after, strict=True) == SchemaJoin(())


def test_changes_that_structures_do_not_show() -> None:
    was, now = shape_of(ID, A), shape_of(ID, "`c` int DEFAULT NULL")
    mine = ShardSchema("mine", was)
    renamed = join(was, [ShardSchema("o0", was)], mine, now, strict=True, renamed={"c": "a"})
    assert join(was, [ShardSchema("o0", was)], mine, was, strict=True, renamed={"a": "a"}) == SchemaJoin(())
    replaced = join(was, [ShardSchema("o0", was)], mine, was, strict=True, replaced=["a"])
    for found in (renamed, replaced):
        assert isinstance(found, NotJoinable)
        assert found.waits
        assert found.subject == "a"
