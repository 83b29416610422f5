"""Tests random tables with random keys: chunks cover every row exactly once, in the server's own order."""

from __future__ import annotations

import itertools

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from shardmerge.worker.binlog.rows.literal_text import literals_of
from shardmerge.worker.core.mysql.connection import Session, Side, connect
from shardmerge.worker.snapshot.chunks import Chunk
from shardmerge.worker.snapshot.key_order import bound_columns, key_bound
from shardmerge.worker.snapshot.source.chunk_source import ChunkSource
from shardmerge.worker.snapshot.table_planner import TablePlanner
from tests.integration.snapshot_rig import SOURCE, endpoint
from tests.integration.snapshot_tables import plan_of, servers, source
from tests.support.database import Database
from tests.support.random_keys import KeyedTable, keyed_tables

__all__ = ["servers", "source"]

EXAMPLES = 25


def test_chunks_cover_every_row_exactly_once(source: Database) -> None:
    session = connect(endpoint(source), Side.SOURCE, name=SOURCE, raw=True)
    reader = ChunkSource(endpoint(source), SOURCE)
    source.execute("CREATE DATABASE shard")

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(keyed_tables(source.flavor), st.integers(1, 12), st.integers(0, 20), st.booleans())
    def check(table: KeyedTable, chunk_rows: int, stopped_at: int, analyzed: bool) -> None:
        note(f"{table.kinds}, chunks of {chunk_rows}")
        _fill(source, table, analyzed=analyzed)
        _check(source, session, reader, chunk_rows, stopped_at)

    try:
        check()
    finally:
        session.close()
        reader.close()


def _fill(source: Database, table: KeyedTable, *, analyzed: bool) -> None:
    source.execute(
        "SET sql_mode = ''", "DROP TABLE IF EXISTS shard.t", table.create("shard.t"), table.insert("shard.t")
    )
    if analyzed:
        source.query("ANALYZE TABLE shard.t")


def _check(source: Database, session: Session, reader: ChunkSource, chunk_rows: int, stopped_at: int) -> None:
    plan = plan_of(source, "shard", "t")
    chunks = list(TablePlanner(session, plan, chunk_rows).chunks())
    if stopped_at < len(chunks) - 1:
        # A plan may be resumed after any of its chunks.
        chunks = [*chunks[: stopped_at + 1], *TablePlanner(session, plan, chunk_rows).chunks(chunks[stopped_at])]
    assert [chunk.number for chunk in chunks] == list(range(len(chunks)))
    assert chunks[0].lower == () and chunks[-1].upper == ()
    assert all(one.upper == other.lower for one, other in itertools.pairwise(chunks))

    names = ", ".join(f"`{column.name}`" for column in plan.table.key_columns)
    ordered = [int(str(row[0])) for row in source.query(f"SELECT v FROM shard.t ORDER BY {names}")]
    columns = bound_columns(plan.table)
    bounds = [chunk.upper for chunk in chunks[:-1]]
    covered: list[int] = []
    for chunk in chunks:
        with reader.exact(plan, chunk, lambda low, end: True) as (_, batches):
            rows = [literals_of(row) for batch in batches for row in batch]
        covered += sorted((int(row[-1]) for row in rows), key=ordered.index)
        keys = [key_bound(columns, tuple(row[index] for index in plan.key)) for row in rows]
        assert reader.places(columns, bounds, keys) == [chunk.number] * len(rows), _shown(chunk)
    # Every row once, and no chunk overlaps the next in the server's order.
    assert covered == ordered


def _shown(chunk: Chunk) -> str:
    return f"the keys of chunk {chunk} are not placed in it"
