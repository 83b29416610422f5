"""Tests that TiDB reads rows by their keys in every form of statement: no plan scans a table or an index.

TiDB counts no rows that a session reads, so its plans are looked at. As a target, it has the forms that lanes, repair
and comparisons use there.
"""

from __future__ import annotations

from collections.abc import Iterator

import pymysql
import pytest

from shardmerge.worker.core.mysql.connection import Session, Side, connect
from shardmerge.worker.core.table_plan import TablePlan
from tests.integration.snapshot_rig import endpoint
from tests.integration.test_key_statements import (
    FAMILIES,
    FEW,
    FORMS,
    ROWS,
    SHAPES,
    Keyed,
    keyed,
    made_table,
    wrong_forms,
)
from tests.support.database import Database
from tests.support.tidb import TiDB

pytestmark = [pytest.mark.tidb, pytest.mark.turns]

_OF_SCANS = 1 << 30
_FORMS = [form for form in FORMS if "source" not in form]
_UNKNOWN = {1115, 1273, 8200}
"""TiDB's errors for character sets and collations that it lacks."""

_LEFT_OUT = {"set", "latin1 set", "gbk"}
"""TiDB uses no index with a SET (docs/reference/tidb-target.md). Texts of gbk are sent to it as utf8mb4."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    made = TiDB(tmp_path_factory.mktemp("keys") / "server", 1).start()
    made.execute("CREATE DATABASE d", "CREATE TABLE d.numbers (n BIGINT PRIMARY KEY)")
    for start in range(0, ROWS, 5000):
        made.execute("INSERT INTO d.numbers VALUES " + ",".join(f"({n})" for n in range(start, start + 5000)))
    yield made
    made.stop()


class Explained(Keyed):
    """Regards a statement whose plan has a full scan as one that reads too many rows."""

    def found(self, statement: bytes) -> tuple[int, int]:
        number, _ = super().found(statement)
        plan = self._selected(b"EXPLAIN " + statement)
        return number, _OF_SCANS if any(b"FullScan" in (operator or b"") for operator, *_ in plan) else 0


def _explained(plan: TablePlan, session: Session) -> Keyed:
    made = keyed(plan, session)
    return Explained(made.plan, made.reads, made.session)


@pytest.fixture
def session(server: Database) -> Iterator[Session]:
    made = connect(endpoint(server), Side.TARGET, name="target", raw=True)
    yield made
    made.close()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_no_plan_scans(server: Database, session: Session, family: str, shape: str) -> None:
    wrong: list[str] = []
    judged = 0
    for name, (definition, value) in FAMILIES[family].items():
        if name in _LEFT_OUT or (shape == "alone" and name in FEW):
            continue
        try:
            plan = made_table(server, definition, value, SHAPES[shape])
        except pymysql.MySQLError as error:
            if error.args[0] not in _UNKNOWN:
                raise
            continue
        judged += 1
        wrong += wrong_forms(_explained(plan, session), f"{name} {shape}", _FORMS)
    assert judged
    assert not wrong, "\n".join(wrong)


def test_a_scan_is_noticed(server: Database, session: Session) -> None:
    plan = made_table(server, "INT", "n", "PRIMARY KEY (k, id)")
    assert _explained(plan, session).found(b"DELETE FROM d.t WHERE v = 5") == (1, _OF_SCANS)
