"""Records binlogs of real servers and their rows, which unit tests read: ``python -m tests.support.capture``.

Each binlog has a JSON file of the same name with what its server reported: the structure of the table, and its final
rows as the literals of a SELECT's values.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from shardmerge.worker.binlog.rows.row_literals import RowWriter
from shardmerge.worker.core.mysql.connection import Endpoint, Side, connect, rows
from shardmerge.worker.core.mysql.information_schema import read_table, select_list
from shardmerge.worker.core.row_change import Literals
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TablePlan
from tests.support import random_types
from tests.support.binlog import Binlog, plan_of, read_binlog
from tests.support.database import Database
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL

DATA = Path(__file__).resolve().parents[1] / "unit" / "worker" / "binlog" / "data"
KEPT = {"mariadb": "mariadb-10.11-random", "mysql": "mysql-9.7-random"}
_ROWS, _CHANGES = 12, 40
_OPTIONS: dict[type[Database], tuple[str, ...]] = {
    # The server does not compress the shorter half of its events.
    MariaDB: ("--sql-mode=", "--binlog-row-metadata=FULL", "--log-bin-compress=1", "--log-bin-compress-min-len=3000"),
    MySQL: ("--sql-mode=",),
}


@dataclass(frozen=True, slots=True)
class Said:
    """What the server reported. ``rows``: each row's literals, in hexadecimal, in key order."""

    table: Table
    rows: tuple[tuple[str, ...], ...]


_JSON = TypeAdapter(Said)


def kept(flavor: str) -> tuple[Binlog, TablePlan, list[Literals]]:
    """Return a stored binlog, the plan of its table, and the rows that the binlog results in."""
    said = _JSON.validate_json((DATA / f"{KEPT[flavor]}.json").read_bytes())
    found = [tuple(bytes.fromhex(value) for value in row) for row in said.rows]
    return read_binlog(DATA / f"{KEPT[flavor]}.binlog"), plan_of(said.table), found


def selected(server: Database, plan: TablePlan) -> list[Literals]:
    """Return the literals that the chunk reader makes of a table's rows, ordered by ``id``."""
    raw = connect(Endpoint(server.host, server.port, "root"), Side.SOURCE, name="s1", raw=True)
    chunk = RowWriter(plan, "s1")
    fields = select_list(each.column for each in plan.columns)
    try:
        return [chunk.literals(row) for row in rows(raw, f"SELECT {fields} FROM {plan.table.full_name} ORDER BY id")]
    finally:
        raw.close()


def described(server: Database, schema: str, name: str) -> TablePlan:
    session = connect(Endpoint(server.host, server.port, "root"), Side.SOURCE, name="s1")
    try:
        table = read_table(session, schema, name)
    finally:
        session.close()
    assert table is not None
    return plan_of(table)


def _capture(server: Database) -> None:
    pick = random.Random(1)
    server.execute("CREATE DATABASE d CHARACTER SET utf8mb4", random_types.create(server.flavor, "d.random"))
    server.execute("FLUSH BINARY LOGS")
    file, _ = server.binlog_end()
    server.execute(*random_types.inserts(server.flavor, "d.random", pick, _ROWS))
    if isinstance(server, MySQL):
        in_place = random_types.json_changes("d.random", pick, _ROWS, _CHANGES)
        server.execute("SET SESSION binlog_row_value_options = 'PARTIAL_JSON'", *in_place)
    server.execute("UPDATE d.random SET ti = -ti, v = NULL WHERE id % 3 = 0", "DELETE FROM d.random WHERE id % 5 = 0")
    server.execute("FLUSH BINARY LOGS")
    plan = described(server, "d", "random")
    found = tuple(tuple(value.hex() for value in row) for row in selected(server, plan))
    shutil.copy(server.directory / "data" / file, DATA / f"{KEPT[server.flavor]}.binlog")
    (DATA / f"{KEPT[server.flavor]}.binlog").chmod(0o644)
    (DATA / f"{KEPT[server.flavor]}.json").write_bytes(_JSON.dump_json(Said(plan.table, found), indent=1))


def main() -> None:
    for kind in (MariaDB, MySQL):
        with tempfile.TemporaryDirectory() as directory:
            server = kind(Path(directory) / "server", 1, _OPTIONS[kind])
            try:
                _capture(server.start())
            finally:
                server.stop()


if __name__ == "__main__":
    main()
