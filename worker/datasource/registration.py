"""Makes the data sources known to a Spark session, which may be one of Spark Connect.

There a DataFrame is a text of operations and options on the client. The server plans it for each action, and for each
place where it occurs in one action, unless it finds an earlier plan in its cache. Its event log and web page have that
text, with the options.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader
from pyspark.sql.types import StructType

from shardmerge.proto import errors
from shardmerge.worker.datasource.mysql_cdc import MySQLChanges
from shardmerge.worker.datasource.mysql_shards import MySQLShards
from shardmerge.worker.datasource.plan.password import PasswordText
from shardmerge.worker.datasource.plan.read_plan import ReadSource
from shardmerge.worker.datasource.way_out import way_out_shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONNECT = "pyspark.sql.connect."


def register(spark: SparkSession) -> None:
    """Make the formats ``mysql-shards`` and ``mysql-cdc`` known to a session."""
    classic, connect = (MySQLShards, MySQLChanges), (MySQLShardsOverConnect, MySQLChangesOverConnect)
    for source in connect if is_connect(type(spark)) else classic:
        spark.dataSource.register(source)


def is_connect(session: type) -> bool:
    """Whether a class of sessions is that of Spark Connect. By its module: importing it needs further packages."""
    return any(base.__module__.startswith(_CONNECT) for base in session.__mro__)


class MySQLShardsOverConnect(MySQLShards):
    """``mysql-shards``. Rows are read only at fixed positions; load() alone reports the present ones."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        with way_out_shown():
            _refuse_password_texts(self.sources)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raises ``read.POSITION_NEEDED``, and what MySQLShards raises."""
        made = super().reader(schema)
        if any(source.fixed is None for source in self.sources):
            with way_out_shown():
                raise errors.read.POSITION_NEEDED()
        return made


class MySQLChangesOverConnect(MySQLChanges):
    """``mysql-cdc``. The checkpoint on the server has the positions."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        with way_out_shown():
            _refuse_password_texts(self.sources)


def _refuse_password_texts(sources: Iterable[ReadSource]) -> None:
    """Raises ``read.PASSWORD_IN_PLAN``."""
    for source in sources:
        if isinstance(source.password, PasswordText) and source.password.text:
            raise errors.read.PASSWORD_IN_PLAN(source=source.source)
