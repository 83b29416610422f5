"""Which statements mean the same for a target whose columns a transform makes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shardmerge.worker.core.table_plan import ColumnPlan, ComputedValue, RowTransform, TablePlan
from shardmerge.worker.ddl.sql.statement import parse_ddl
from shardmerge.worker.ddl.sql.transform_conflicts import transform_conflict
from tests.support.plans import integer, table_plan, text


def plan(*, has_star: bool = True) -> TablePlan:
    """`n + m AS total, v AS word, *` of (id, n, m, v, w)."""
    made = table_plan(
        (integer(), replace(integer(), name="n"), replace(integer(), name="m"), text("v"), text("w")), (0,)
    )
    columns = (
        ColumnPlan(-1, replace(integer(), name="total"), "total", ComputedValue("n + m AS total")),
        ColumnPlan(3, made.table.columns[3], "word"),
        *(column for at, column in enumerate(made.columns) if at != 3),
    )
    return replace(made, columns=columns, key=(2,), transform=RowTransform("t", "", (1, 2), has_star))


INDEXES = {"by_w": ("w",), "by_v": ("v", "w"), "by_word": ("Word",)}


@pytest.mark.parametrize(
    ("statement", "runs"),
    [
        ("ALTER TABLE t ADD COLUMN x INT", True),
        ("ALTER TABLE t ADD COLUMN x INT, DROP COLUMN w", True),
        ("ALTER TABLE t MODIFY w TEXT", True),
        ("ALTER TABLE t RENAME COLUMN w TO x", True),
        ("ALTER TABLE t CHANGE w w VARCHAR(99)", True),
        ("ALTER TABLE t ALGORITHM=INPLACE, ADD COLUMN x INT", True),
        ("TRUNCATE TABLE t", True),
        ("DROP TABLE t", True),
        ("ALTER TABLE t DROP COLUMN n", False),
        ("ALTER TABLE t MODIFY m BIGINT", False),
        ("ALTER TABLE t MODIFY v TEXT", False),
        ("ALTER TABLE t ADD COLUMN total INT", False),
        ("ALTER TABLE t ADD COLUMN Word INT", False),
        ("ALTER TABLE t RENAME COLUMN w TO total", False),
        ("ALTER TABLE t ADD INDEX (n), COMMENT 'x'", True),
        ("ALTER TABLE t ADD UNIQUE KEY k (`N` DESC, w(3)), ADD COLUMN x INT", True),
        ("ALTER TABLE t ADD COLUMN x INT, ENGINE=InnoDB DEFAULT CHARSET utf8mb4", True),
        ("ALTER TABLE t DROP INDEX by_w, ALTER INDEX BY_W INVISIBLE, RENAME INDEX by_w TO other", True),
        ("CREATE UNIQUE INDEX i USING BTREE ON t (w, n) COMMENT '(v)'", True),
        ("DROP INDEX by_w ON t", True),
        ("ALTER TABLE t ADD INDEX (v)", False),
        ("ALTER TABLE t ADD UNIQUE (w, total)", False),
        ("ALTER TABLE t ADD INDEX ((n + 1))", False),
        ("ALTER TABLE t ADD INDEX (w, (n + 1))", False),
        ("ALTER TABLE t ADD FULLTEXT INDEX (v)", False),
        ("ALTER TABLE t RENAME INDEX by_v TO other", False),
        ("ALTER TABLE t DROP INDEX nobody_knows", False),
        ("ALTER TABLE t DROP INDEX by_word", False),
        ("ALTER TABLE t ADD CHECK (w > 'a')", False),
        ("ALTER TABLE t DROP PRIMARY KEY", False),
        ("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4", False),
        ("CREATE INDEX i ON t (n, v)", False),
        ("DROP INDEX i ON t", False),
    ],
)
def test_statements(statement: str, runs: bool) -> None:
    ddl = parse_ddl(statement, "s", 0)
    assert ddl is not None
    assert (transform_conflict(statement, ddl, plan(), INDEXES, 0) == "") is runs


def test_without_a_star_no_column_is_included() -> None:
    text = "ALTER TABLE t ADD COLUMN x INT"
    ddl = parse_ddl(text, "s", 0)
    assert ddl is not None
    assert "no `*`" in transform_conflict(text, ddl, plan(has_star=False), {}, 0)
