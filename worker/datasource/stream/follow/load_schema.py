"""The columns of a stream at load(): those of the tables as they are then."""

from __future__ import annotations

from pyspark.sql.types import StructType

from shardmerge.worker.datasource.plan.read_plan import frame_columns
from shardmerge.worker.datasource.planning import plan_table
from shardmerge.worker.datasource.stream.follow.first_offset import tables_now
from shardmerge.worker.datasource.stream.model.options import StreamOptions
from shardmerge.worker.datasource.stream.tables.stream_schema import stream_schema
from shardmerge.worker.rules.rules import check_partitions


def load_schema(options: StreamOptions) -> StructType:
    """Raises the errors of proto/errors/read.py, of the rules and of the connections."""
    plans = [
        plan_table(number, table, source, with_rows=False)
        for source in options.read.sources
        for number, table in enumerate(tables_now(source, options).tables)
    ]
    check_partitions(plans)
    return stream_schema(frame_columns(plans, options.read.columns))
