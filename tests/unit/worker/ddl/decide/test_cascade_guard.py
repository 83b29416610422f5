"""Tests which statements stop a task that derives cascades."""

from __future__ import annotations

import pytest

from shardmerge.worker.core.cascades import CascadeKey, CascadeKeys
from shardmerge.worker.core.sql.foreign_keys import ForeignKeyAction
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.ddl.decide.cascade_guard import changes_cascades
from shardmerge.worker.ddl.sql.statement import parse_ddl

KEYS = CascadeKeys(
    (CascadeKey(0, 1, "up", ("p",), ("id",), ForeignKeyAction.CASCADE, ForeignKeyAction.NONE),),
)
PLANS = {
    number: TablePlan(number, "source", Table("s", name, (), (), "", (), False, "InnoDB"), "all", name, (), ())
    for number, name in enumerate(("parent", "child", "other"))
}


@pytest.mark.parametrize(
    ("statement", "table"),
    [
        ("ALTER TABLE child ADD COLUMN x INT", ""),
        ("ALTER TABLE child MODIFY COLUMN x BIGINT", ""),
        ("ALTER TABLE child ADD INDEX i (x), DROP COLUMN y", ""),
        ("ALTER TABLE other DROP FOREIGN KEY f, RENAME COLUMN p TO q", ""),
        ("DROP TABLE other", ""),
        ("TRUNCATE TABLE child", ""),
        ("ALTER TABLE child DROP FOREIGN KEY up", "child"),
        ("ALTER TABLE CHILD DROP CONSTRAINT up", "child"),
        ("ALTER TABLE child DROP COLUMN P", "child"),
        ("ALTER TABLE child RENAME COLUMN p TO q", "child"),
        ("ALTER TABLE child CHANGE p q BIGINT", "child"),
        ("ALTER TABLE parent MODIFY id BIGINT UNSIGNED", "parent"),
        ("ALTER TABLE parent RENAME TO parents", "parent"),
        ("ALTER TABLE other EXCHANGE PARTITION p0 WITH TABLE child", "child"),
        ("RENAME TABLE other TO third, child TO fourth", "child"),
        ("RENAME TABLE other TO child", "child"),
        ("DROP TABLE other, child", "child"),
        ("CREATE OR REPLACE TABLE child (id INT)", "child"),
        ("DROP DATABASE s", "parent"),
        ("DROP DATABASE t", ""),
    ],
)
def test_statements(statement: str, table: str) -> None:
    ddl = parse_ddl(statement, "s", 0)
    assert ddl is not None
    found = changes_cascades(ddl, KEYS, PLANS)
    assert found == (("s", table) if table else None)
