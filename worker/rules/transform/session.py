"""The Spark SQL session in which transforms are parsed and evaluated: one per worker, with settings of its own.

The meaning of an expression does not depend on the user's settings: ANSI mode (overflow, division by zero and bad casts
are errors, never NULL), UTC, case-insensitive names. It never starts a job, because lanes and chunk readers may occupy
every slot: a relation without rows stays in the plan while Spark optimizes, and Spark's interpreter evaluates the
result (worker/rules/transform/projection.py), each value only where its expression is used.
"""

from __future__ import annotations

import logging
import threading
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

_RULES = "org.apache.spark.sql.catalyst.optimizer"
_SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.preserveCharVarcharTypeInfo": "true",
    # If it were on, Spark would replace ${…} in a text, even between quotes, by an environment variable or a setting.
    "spark.sql.variable.substitute": "false",
    # Spark must parse a text by the same rules as proto/config/rules/transform.py.
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
    "spark.sql.optimizer.excludedRules": f"{_RULES}.ConvertToLocalRelation,{_RULES}.PropagateEmptyRelation",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.subexpressionElimination.enabled": "false",
}
_lock = threading.Lock()
_known: list[SparkSession] = []


def session() -> SparkSession:
    """The session of the process's Spark, which is started if needed (the worker starts it before everything else)."""
    with _lock:
        if not _known:
            found = SparkSession.builder.getOrCreate().newSession()
            for key, value in _SETTINGS.items():
                found.conf.set(key, value)
            # PySpark logs each error with its stack in addition to raising it; the caller reports it with its table.
            for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
                PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)
            _known.append(found)
        return _known[0]


def activate() -> None:
    """Make the session the active one in this thread of the JVM: Spark parses and evaluates with its settings."""
    _sessions().setActiveSession(session()._jsparkSession)


@lru_cache(maxsize=1)
def _sessions() -> Any:
    return session()._jvm.SparkSession


def names_clock(plan: Any) -> bool:
    """Whether an analysed plan takes constant texts such as 'today', 'now' or 'epoch' for dates or times, even if they
    are composed: Spark's optimizer does that by this rule (Migration Guide: SQL, 3.1 to 3.2), so the rule itself is
    applied. Elsewhere such words are not dates, which is an error. Raises ``PySparkException``."""
    rules: Any = session()._jvm.org.apache.spark.sql.catalyst.optimizer
    replaced = rules.ReplaceExpressions.apply(plan)
    return not bool(rules.SpecialDatetimeValues.apply(replaced).fastEquals(replaced))


def relation(schema: pa.Schema) -> DataFrame:
    """A DataFrame without rows; timestamps have no time zone."""
    return session().createDataFrame(schema.empty_table(), from_arrow_schema(schema, prefer_timestamp_ntz=True))
