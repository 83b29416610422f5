"""Reads what a source's binlog holds about one row: every change of it, with its position.

It uses another decoder (mysql-replication) than the one under test. For a difference at the end of a soak, the first
change that is missing at the target shows where to look: its place in the relay log, and the fault at that time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, RowsEvent, UpdateRowsEvent, WriteRowsEvent

from tests.soak.merge import ELSEWHERE, SCHEMA, SoakTable
from tests.support.judge import Row

_MARK = "end_of_history"
_SIDES = ("before_values", "after_values", "values")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A row of a target table as one shard table would hold it."""

    table: SoakTable
    key: Row


def wanted(tables: Sequence[SoakTable], identity: Row) -> list[Wanted]:
    """Return the shard tables that a row of the target may come from, and its key there."""
    found: list[Wanted] = []
    for table in tables:
        if table.ids is None:
            found.append(Wanted(table, identity))
            continue
        merged = identity[0]
        assert isinstance(merged, int)
        own = merged - table.ids(0)
        if 0 <= own < 1 << 44:
            found.append(Wanted(table, (own,)))
    return found


def changes(one: Wanted) -> Iterator[str]:
    """Generate every change of the row in the binlog, oldest first."""
    server = one.table.source.server
    # The reader waits for more events at the end of the binlog: this own change is where it must stop.
    server.execute(f"CREATE TABLE `{ELSEWHERE}`.{_MARK} (id INT)", f"INSERT INTO `{ELSEWHERE}`.{_MARK} VALUES (1)")
    [(first, *_), *_] = server.query("SHOW BINARY LOGS")
    reader = BinLogStreamReader(
        {"host": server.host, "port": server.port, "user": "root"},
        4712,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        only_schemas=[SCHEMA, ELSEWHERE],
        only_tables=[one.table.table, _MARK],
        blocking=True,
        log_file=str(first),
        log_pos=4,
        resume_stream=True,
        is_mariadb=server.flavor == "mariadb",
    )
    columns = one.table.kind.key or one.table.kind.columns
    try:
        for event in reader:
            assert isinstance(event, RowsEvent)
            if event.table == _MARK:
                return
            at = datetime.fromtimestamp(event.timestamp, UTC).strftime("%H:%M:%S")
            for row in event.rows:
                sides = [cast("dict[str, Any]", row[side]) for side in _SIDES if side in row]
                if any(tuple(values[name] for name in columns) == one.key for values in sides):
                    place = f"{one.table.source.name} {reader.log_file}:{reader.log_pos}"
                    yield f"{at} {place} {type(event).__name__} {' → '.join(str(values) for values in sides)}"
    finally:
        reader.close()
        server.execute(f"DROP TABLE `{ELSEWHERE}`.{_MARK}")
