"""Makes the data sources known to a Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardmerge.worker.datasource.mysql_cdc import MySQLChanges
from shardmerge.worker.datasource.mysql_shards import MySQLShards
from shardmerge.worker.datasource.over_connect import MySQLChangesOverConnect, MySQLShardsOverConnect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONNECT = "pyspark.sql.connect."


def register(spark: SparkSession) -> None:
    """Make the formats ``mysql-shards`` and ``mysql-cdc`` known to a session, which may be one of Spark Connect."""
    classic, connect = (MySQLShards, MySQLChanges), (MySQLShardsOverConnect, MySQLChangesOverConnect)
    for source in connect if is_connect(type(spark)) else classic:
        spark.dataSource.register(source)


def is_connect(session: type) -> bool:
    """Whether a class of sessions is that of Spark Connect. By its module: importing it needs further packages."""
    return any(base.__module__.startswith(_CONNECT) for base in session.__mro__)
