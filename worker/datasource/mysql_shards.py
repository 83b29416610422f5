"""The data source ``mysql-shards``: shard tables of several servers as one DataFrame, at one position of each server.

Spark makes a :class:`MySQLShards` at load(), which fixes the positions, and pickles it into the DataFrame's plan. All
actions on the DataFrame read from this plan, and so have the same rows.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader

from shardmerge.proto import errors
from shardmerge.worker.datasource.partition_reader import ShardsReader
from shardmerge.worker.datasource.plan.read_plan import FIXED, POSITIONS, ReadPlan, ReadSource
from shardmerge.worker.datasource.way_out import way_out_shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader
    from pyspark.sql.types import StructType

NAME = "mysql-shards"


def positions(frame: DataFrame) -> dict[str, str]:
    """By source-id: the position of which a loaded DataFrame has the state, as ``file:byte``."""
    metadata: dict[str, Any] = frame.schema.fields[0].metadata or {}
    found: dict[str, str] = metadata[POSITIONS]
    return found


def load_fixed(reader: DataFrameReader) -> DataFrame:
    """Load a DataFrame whose options fix its positions (option ``position``): whenever Spark plans it, it has the same
    rows. Over Spark Connect each DataFrame of mysql-shards needs it. A later state needs another reader."""
    metadata: dict[str, Any] = reader.load().schema.fields[0].metadata or {}
    return reader.option("position", metadata[FIXED]).load()


class MySQLShards(DataSource):
    """For ``spark.dataSource.register``; see :func:`shardmerge.worker.datasource.registration.register`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        # The options are not kept: the plan has what is needed of them.
        from shardmerge.worker.datasource.plan.options import parse_options

        with way_out_shown():
            self._options = parse_options(options)
        self._plan: ReadPlan | None = None

    @property
    def sources(self) -> tuple[ReadSource, ...]:
        return self._options.sources

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        """Also determines the positions, once per load(). Raises the errors of plan_read()."""
        from shardmerge.worker.datasource.planning import plan_read

        if self._plan is None:
            with way_out_shown():
                self._plan = plan_read(self._options)
        return self._plan.schema

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raises ``read.OPTION`` for a DataFrame whose schema the user set."""
        if self._plan is None:
            reason = "it cannot be set: the tables determine it. Select columns with option columns"
            raise errors.read.OPTION(option="schema", reason=reason)
        return ShardsReader(self._plan, schema)
