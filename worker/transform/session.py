"""The session of Spark SQL that transforms are read and evaluated in: one per worker, with settings of its own.

What an expression means hangs on no setting of the user's: ANSI mode (overflow, division by zero and bad casts are
errors, never NULL), UTC, names whatever their case. Rows stand in the plan itself, so that Spark evaluates them while
it optimizes (ConvertToLocalRelation) and no job is started: lanes and chunk readers may hold every slot.
"""

from __future__ import annotations

import threading

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.preserveCharVarcharTypeInfo": "true",
    "spark.sql.execution.arrow.localRelationThreshold": "64MB",
    "spark.sql.optimizer.excludedRules": "",
}
_lock = threading.Lock()
_known: list[SparkSession] = []


def session() -> SparkSession:
    """Of the process's Spark, which is started if it is not (the worker starts it first of all)."""
    with _lock:
        if not _known:
            found = SparkSession.builder.getOrCreate().newSession()
            for key, value in _SETTINGS.items():
                found.conf.set(key, value)
            _known.append(found)
        return _known[0]


def relation(rows: pa.Table) -> DataFrame:
    """A DataFrame of rows in the plan itself; timestamps have no time zone."""
    return session().createDataFrame(rows, from_arrow_schema(rows.schema, prefer_timestamp_ntz=True))
