"""Counts row changes in a server's binlog with the library mysql-replication, not with the project's decoder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.row_event import DeleteRowsEvent, RowsEvent, UpdateRowsEvent, WriteRowsEvent

from tests.support.database import Database

_SERVER_ID = 4713


def counted_changes(server: Database, schemas: tuple[str, ...], start: tuple[str, int]) -> Counter[str]:
    """Count insert, update and delete of rows of ``schemas`` from ``start`` to the present end of the binlog, which
    must be in the same file. An update that changes the first column, the key, counts as a delete and an insert."""
    file, end = server.binlog_end()
    assert file == start[0], "the binlog was rotated"
    found: Counter[str] = Counter(insert=0, update=0, delete=0)
    if start[1] == end:
        return found
    reader = BinLogStreamReader(
        {"host": server.host, "port": server.port, "user": "root"},
        _SERVER_ID,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent],
        only_schemas=list(schemas),
        blocking=True,
        log_file=file,
        log_pos=start[1],
        end_log_pos=end,
        resume_stream=True,
        # A dump from a position; for MariaDB the library would begin at the first file.
        is_mariadb=False,
        # It decodes VARBINARY as text.
        ignore_decode_errors=True,
    )
    try:
        for event in reader:
            assert isinstance(event, RowsEvent)
            for row in event.rows:
                if isinstance(event, WriteRowsEvent):
                    found["insert"] += 1
                elif isinstance(event, DeleteRowsEvent):
                    found["delete"] += 1
                elif _first(row["before_values"]) == _first(row["after_values"]):
                    found["update"] += 1
                else:
                    found.update(("delete", "insert"))
    finally:
        reader.close()
    return found


def _first(values: Mapping[str, object]) -> object:
    """The first column's value: without the metadata of a server's own setting the library does not know its name."""
    return next(iter(values.values()))
