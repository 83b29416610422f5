"""Tests which foreign keys change rows that the binary log does not show."""

from __future__ import annotations

import pytest

from shardmerge.worker.core.sql.foreign_keys import (
    ForeignKey,
    ForeignKeyAction,
    added_foreign_keys,
    adds_cascade,
    cascading_keys,
    foreign_keys,
)

CREATION = """CREATE TABLE `t` (
  `id` int(11) NOT NULL,
  `p` int(11) DEFAULT NULL COMMENT 'REFERENCES x ON DELETE CASCADE',
  `at` timestamp NOT NULL DEFAULT current_timestamp() ON UPDATE current_timestamp(),
  PRIMARY KEY (`id`),
  KEY `FOREIGN KEY` (`p`),
  CONSTRAINT `one` FOREIGN KEY (`p`) REFERENCES `parent` (`id`) ON DELETE CASCADE,
  CONSTRAINT `two``s` FOREIGN KEY (`p`) REFERENCES `parent` (`id`) ON UPDATE SET NULL,
  CONSTRAINT `three` FOREIGN KEY (`p`) REFERENCES `parent` (`id`) ON DELETE NO ACTION ON UPDATE RESTRICT,
  CONSTRAINT `four` FOREIGN KEY (`p`) REFERENCES `parent` (`id`)
) ENGINE=InnoDB"""


def test_actions_of_a_key() -> None:
    none, cascade, set_null = ForeignKeyAction.NONE, ForeignKeyAction.CASCADE, ForeignKeyAction.SET_NULL
    assert [(key.on_delete, key.on_update) for key in foreign_keys(CREATION)] == [
        (cascade, none),
        (none, set_null),
        (none, none),
        (none, none),
    ]


def test_keys_of_a_table() -> None:
    assert cascading_keys(CREATION) == ("one", "two`s")


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("ALTER TABLE c ADD FOREIGN KEY (p) REFERENCES t (id) ON DELETE CASCADE", True),
        ("ALTER TABLE c ADD CONSTRAINT f FOREIGN KEY (p) REFERENCES t (id) on update set default", True),
        ("ALTER TABLE c ADD p INT REFERENCES t (id) ON DELETE SET NULL", True),
        ("CREATE TABLE c (p INT, FOREIGN KEY (p) REFERENCES t (id) ON UPDATE NO ACTION ON DELETE CASCADE)", True),
        ("ALTER TABLE c ADD FOREIGN KEY (p) REFERENCES t (id) /*!50000 ON DELETE CASCADE */", True),
        ("ALTER TABLE c ADD FOREIGN KEY (p) REFERENCES t (id) ON DELETE RESTRICT ON UPDATE NO ACTION", False),
        ("ALTER TABLE c ADD at TIMESTAMP ON UPDATE CURRENT_TIMESTAMP", False),
        ("ALTER TABLE c ADD p INT COMMENT 'REFERENCES t (id) ON DELETE CASCADE'", False),
        ("ALTER TABLE c DROP FOREIGN KEY f", False),
    ],
)
def test_statements(statement: str, expected: bool) -> None:
    assert adds_cascade(statement, 0) is expected


def test_columns_and_tables_of_foreign_keys() -> None:
    creation = CREATION.replace(
        "CONSTRAINT `four` FOREIGN KEY (`p`) REFERENCES `parent` (`id`)",
        "CONSTRAINT `four` FOREIGN KEY (`p`,`a``,(b`) REFERENCES `o.``ther`.`par,ent` (`id`, `x)`) ON DELETE RESTRICT",
    )
    found = foreign_keys(creation)
    assert [key.name for key in found] == ["one", "two`s", "three", "four"]
    cascade = ForeignKeyAction.CASCADE
    assert found[0] == ForeignKey("one", ("p",), "", "parent", ("id",), "ON DELETE CASCADE", cascade)
    assert found[3] == ForeignKey("four", ("p", "a`,(b"), "o.`ther", "par,ent", ("id", "x)"), "ON DELETE RESTRICT")


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("ALTER TABLE c ADD FOREIGN KEY (p, `q``r`) REFERENCES t (id, x)", (("p", "q`r"), "", "t", ("id", "x"))),
        ("ALTER TABLE c ADD CONSTRAINT f FOREIGN KEY ix (p) REFERENCES `a.b`.t(id)", (("p",), "a.b", "t", ("id",))),
        ("ALTER TABLE c ADD FOREIGN KEY IF NOT EXISTS f (p) REFERENCES a.t (id)", (("p",), "a", "t", ("id",))),
        ("ALTER TABLE c ADD p INT REFERENCES t (id)", ((), "", "t", ("id",))),
        ("CREATE TABLE c (id INT CHECK (id > 0) REFERENCES t (id))", ((), "", "t", ("id",))),
        ("CREATE TABLE c (p INT, FOREIGN KEY (p) REFERENCES t (id) ON DELETE RESTRICT)", (("p",), "", "t", ("id",))),
    ],
)
def test_keys_that_a_statement_adds(
    statement: str, expected: tuple[tuple[str, ...], str, str, tuple[str, ...]]
) -> None:
    [found] = added_foreign_keys(statement, 0)
    assert (found.columns, found.schema, found.table, found.to_columns) == expected


def test_statements_without_keys() -> None:
    assert added_foreign_keys("ALTER TABLE c ADD p INT COMMENT 'FOREIGN KEY (p) REFERENCES t (id)'", 0) == ()
    assert added_foreign_keys("ALTER TABLE c DROP FOREIGN KEY f", 0) == ()
