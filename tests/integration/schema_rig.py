"""Defines what both kinds of servers must report alike about their structures and values."""

from __future__ import annotations

from shardmerge.worker.core.mysql.connection import Session, Side, connect, execute, rows
from shardmerge.worker.core.mysql.information_schema import read_table, select_list
from shardmerge.worker.core.table import Table
from tests.integration.snapshot_rig import endpoint
from tests.support.database import Database


def described(session: Session, name: str) -> Table:
    found = read_table(session, "s", name, source="src-1")
    assert found is not None
    return found


def expect_every_bit(fresh: Database) -> None:
    """Check that values are read without losing a bit; schema ``s`` exists and is empty."""
    sets = ",".join(f"'m{number}'" for number in range(64))
    fresh.execute(
        f"CREATE TABLE s.t (id int PRIMARY KEY, f float, f2 float(10,3), d double, d2 double(10,2), b bit(64),"
        f" e enum('7','8'), st set({sets}), y year, z int(6) zerofill, dz decimal(10,2) zerofill,"
        " bz bigint zerofill, ts timestamp(6) NULL, c char(4), u varchar(9) CHARACTER SET utf8mb4, bl blob)"
    )
    with connect(endpoint(fresh), Side.SOURCE, name="src-1", raw=True) as session:
        execute(
            session,
            "INSERT INTO s.t VALUES (1, 0.1, 1.1, 1e300, 2.675, ~0, '8', ~0, 0, 42, 4.5, 18446744073709551615,"
            " '2024-01-02 03:04:05.000006', x'e9', '😀', x'00ff'),"
            " (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
        )
        table = described(session, "t")
        statement = f"SELECT {select_list(table.columns)} FROM s.t ORDER BY id"
        everything = str((1 << 64) - 1).encode()
        first, second = rows(session, statement)
    assert first == (
        b"1", b"0.10000000149011612", b"1.100000023841858", b"1e300", b"2.67", everything, b"2", everything, b"0",
        b"42", b"4.50", everything, b"2024-01-02 03:04:05.000006", b"\xe9", "😀".encode(), b"\x00\xff",
    )  # fmt: skip
    assert second == (b"2", *(None for _ in range(15)))
