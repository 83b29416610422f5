"""Makes the data sources known to a Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardmerge.worker.datasource.mysql_cdc import MySQLChanges
from shardmerge.worker.datasource.mysql_shards import MySQLShards

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make the formats ``mysql-shards`` and ``mysql-cdc`` known to a session."""
    for source in (MySQLShards, MySQLChanges):
        spark.dataSource.register(source)
