"""Plans the partitions of a read in the driver, and reads them in Spark's tasks.

Tasks unpickle the classes of this module, so it imports nothing that only the driver needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.cancellable_session import close_quietly
from shardmerge.worker.core.mysql.connection import Side, coded_errors
from shardmerge.worker.datasource.plan.read_plan import ReadOptions, ReadPlan, SourcePlan
from shardmerge.worker.datasource.shard_rows import Piece, check_statements, read_piece
from shardmerge.worker.datasource.way_out import way_out_shown
from shardmerge.worker.snapshot.chunks import Chunk
from shardmerge.worker.snapshot.source.chunk_source import open_source
from shardmerge.worker.snapshot.table_planner import TablePlanner


@dataclass(frozen=True, slots=True)
class PartitionChunk:
    """``rows``: an estimate."""

    table: int
    chunk: Chunk
    rows: int


class ShardPartition(InputPartition):
    """Pieces that one task reads."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__(None)
        self.pieces = tuple(pieces)

    def __repr__(self) -> str:
        return f"ShardPartition({len(self.pieces)} chunks)"


class ShardsReader(DataSourceReader):
    """The rows of a read plan."""

    def __init__(self, plan: ReadPlan, schema: StructType) -> None:
        self._plan, self._schema = plan, schema

    def partitions(self) -> Sequence[InputPartition]:
        most = self._plan.options.chunk_rows
        with way_out_shown():
            return [
                partition
                for number, source in enumerate(self._plan.sources)
                for partition in packed(number, _chunks(source, self._plan.options), most)
            ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        schema = to_arrow_schema(self._schema, timezone="UTC")
        # Spark passes a partition without pieces for a DataFrame without partitions, which this one never is.
        pieces = partition.pieces if isinstance(partition, ShardPartition) else ()
        with way_out_shown():
            for piece in pieces:
                yield from read_piece(self._plan, piece, schema)


def _chunks(source: SourcePlan, options: ReadOptions) -> list[PartitionChunk]:
    """The chunks of all tables of a source. Raises the errors of the connection, of the planner and of the state."""
    endpoint, name = source.source.connection(), source.source.source
    session = open_source(endpoint, name)
    found: list[PartitionChunk] = []
    try:
        with coded_errors(endpoint, Side.SOURCE, name):
            for number, table in enumerate(source.tables):
                chunks = list(TablePlanner(session, table.plan, options.chunk_rows).chunks())
                rows = table.plan.table.row_estimate // len(chunks)
                found += (PartitionChunk(number, chunk, rows) for chunk in chunks)
    except ShardmergeError:
        check_statements(source, options, endpoint)
        raise
    finally:
        close_quietly(session)
    return found


def packed(source: int, chunks: Iterable[PartitionChunk], most_rows: int) -> Iterator[ShardPartition]:
    """Partitions of about ``most_rows`` rows at most: small tables share one."""
    pieces: list[Piece] = []
    rows = 0
    for each in chunks:
        if pieces and rows + each.rows > most_rows:
            yield ShardPartition(pieces)
            pieces, rows = [], 0
        pieces.append(Piece(source, each.table, each.chunk))
        rows += each.rows
    if pieces:
        yield ShardPartition(pieces)
