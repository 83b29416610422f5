"""The data source ``mysql-cdc``: the changes of shard tables of several servers as a structured stream.

Spark makes a :class:`MySQLChanges` at load(), which determines the columns, and pickles it into the query. The start of
the stream is determined when the query starts for the first time.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceStreamReader

from shardmerge.proto import errors
from shardmerge.worker.datasource.way_out import way_out_shown

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from shardmerge.worker.datasource.plan.read_plan import ReadSource

NAME = "mysql-cdc"


class MySQLChanges(DataSource):
    """For ``spark.dataSource.register``; see :func:`shardmerge.worker.datasource.registration.register`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        # The options are not kept: the parsed ones have what is needed of them.
        from shardmerge.worker.datasource.stream.model.options import parse_stream_options

        with way_out_shown():
            self._options = parse_stream_options(options)

    @property
    def sources(self) -> tuple[ReadSource, ...]:
        return self._options.read.sources

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        """The columns of the tables as they are now. Raises the errors of load_schema()."""
        from shardmerge.worker.datasource.stream.follow.first_offset import load_schema

        with way_out_shown():
            return load_schema(self._options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Raises ``read.OPTION`` for a stream whose schema the user set."""
        from shardmerge.worker.datasource.stream.stream_reader import ChangesReader

        if "after" not in schema.names or "schema_version" not in schema.names:
            reason = "it cannot be set: the tables determine it. Select columns with option columns"
            raise errors.read.OPTION(option="schema", reason=reason)
        return ChangesReader(self._options, schema)
