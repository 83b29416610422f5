"""The structures of the tables along the binlog: read from the source, and proved by the statements of the binlog.

A source shows the structures that its tables have now. A table has the structure at an earlier position, too, if no
statement between that position and the end of the binlog, read after the structure, changes the table. If one does, the
structure before it is unknown; its rows cannot be decoded, and stop the stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from shardmerge.worker.core.mysql.connection import server_info
from shardmerge.worker.core.mysql.endpoint import Endpoint
from shardmerge.worker.core.mysql.information_schema import list_tables, read_tables
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.table import Table
from shardmerge.worker.core.table_plan import TargetTable
from shardmerge.worker.datasource.group_reader import other_server
from shardmerge.worker.datasource.plan.read_plan import ReadSource
from shardmerge.worker.datasource.planning import check_cascades
from shardmerge.worker.datasource.stream.binlog.scan import TableStatement, statements_between
from shardmerge.worker.datasource.stream.model.ddl import (
    ChangesTables,
    IsWanted,
    keeps_structure,
    meaning_of,
    same_name,
    wanted_by,
)
from shardmerge.worker.datasource.stream.model.offset import StreamTable, TableName
from shardmerge.worker.snapshot.source.chunk_source import source_session
from shardmerge.worker.snapshot.source.watermarks import end_of_binlog


def tables_before(
    source: ReadSource,
    endpoint: Endpoint,
    target: TargetTable,
    tables: Iterable[Table],
    start: SourcePosition,
    end: SourcePosition,
) -> dict[TableName, StreamTable]:
    """The tables at ``start``. ``tables``: those at ``end``. Raises the errors of GroupReader."""
    found = {(table.schema, table.name): StreamTable(table.structure) for table in tables}
    later = _later_changes(source, endpoint, wanted_by(source, target), found, start, end)
    return {
        name: table if (at := _change_of(name, later)) is None else StreamTable(None, reason=_before(at))
        for name, table in found.items()
    }


def structures_after(
    source: ReadSource,
    endpoint: Endpoint,
    target: TargetTable,
    known: Mapping[TableName, StreamTable],
    found: TableStatement,
) -> dict[TableName, StreamTable]:
    """The tables after a statement. ``known``: those before it.

    Raises ``read.TABLE_REFUSED``, STREAM_OTHER_SERVER, the errors of the structure, of the connection and of
    GroupReader.
    """
    place, end = found.stated.statement.position, found.stated.end
    tables, now = _changed_now(source, endpoint, target, found.change, place)
    read = {(table.schema, table.name): table.structure for table in tables}
    is_wanted = wanted_by(source, target)
    later = _later_changes(source, endpoint, is_wanted, {*known, *read}, end, now)
    made = dict(known)
    changed = [name for name in known if any(same_name(name, one) for one in found.change.tables)]
    for name in (*changed, *(name for name in read if name not in known)):
        version = known[name].version + 1 if name in known else 1
        at = _change_of(name, later)
        if at is not None:
            made[name] = StreamTable(None, version, _before(at))
        elif name in read:
            made[name] = StreamTable(read[name], version)
        else:
            made[name] = StreamTable(None, version, f"the statement at {_shown(place)} has removed the table")
    return made


def _changed_now(
    source: ReadSource, endpoint: Endpoint, target: TargetTable, change: ChangesTables, place: SourcePosition
) -> tuple[list[Table], SourcePosition]:
    """The tables of a statement as they are now, and the end of the binlog afterwards."""
    with source_session(endpoint, source.source) as session:
        info = server_info(session)
        if place.server and info.identity != place.server:
            raise other_server(source.source, place, info.identity)
        names = [
            name
            for name in list_tables(session)
            if source.sends_to(target, *name) and any(same_name(name, one) for one in change.tables)
        ]
        tables = read_tables(session, names, source=source.source)
        check_cascades(session, source.source, tables)
        return tables, end_of_binlog(session, info)


def _later_changes(
    source: ReadSource,
    endpoint: Endpoint,
    is_wanted: IsWanted,
    known: Iterable[TableName],
    start: SourcePosition,
    end: SourcePosition,
) -> dict[TableName, SourcePosition]:
    """By the names in lower case: where the last statement between two positions that changes a table's structure
    begins."""
    names = list(known)
    found: dict[TableName, SourcePosition] = {}
    for stated in statements_between(source.source, endpoint, replace(start, server=end.server), end):
        meaning = meaning_of(stated.statement, is_wanted, names)
        if isinstance(meaning, ChangesTables) and not keeps_structure(stated.statement):
            for schema, name in meaning.tables:
                found[schema.lower(), name.lower()] = stated.statement.position
    return found


def _change_of(name: TableName, changes: Mapping[TableName, SourcePosition]) -> SourcePosition | None:
    return changes.get((name[0].lower(), name[1].lower()))


def _before(at: SourcePosition) -> str:
    return f"they are before the statement at {_shown(at)}, and the structure that the table had is not known"


def _shown(at: SourcePosition) -> str:
    return f"{at.file}:{at.pos}"
