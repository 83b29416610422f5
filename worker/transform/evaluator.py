"""Transforms evaluated: the driver's end, which answers lanes and chunk readers."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyarrow import ipc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import TimestampType

from proto import relay_pb2
from worker.transform.analyst import said
from worker.transform.session import relation
from worker.transform.values import ROW, BadValue, literal_of


def evaluate(request: relay_pb2.EvaluateRequest) -> relay_pb2.EvaluateResponse:
    """What the items and the filter make of the rows; several threads at a time.

    Raises what the JVM raises where it is not about the expressions.
    """
    rows = ipc.open_stream(request.rows).read_all()
    try:
        passed, literals = _evaluated(rows, list(request.items), request.filter)
    except PySparkException as error:
        return relay_pb2.EvaluateResponse(refused=said(error))
    except BadValue as reason:
        return relay_pb2.EvaluateResponse(refused=str(reason))
    return relay_pb2.EvaluateResponse(passed=passed, literals=literals)


def _evaluated(rows: pa.Table, items: Sequence[str], condition: str) -> tuple[list[int], list[bytes]]:
    frame = relation(rows)
    if condition:
        frame = frame.where(condition)
    frame = _without_zones(frame.selectExpr(ROW, *items))
    passed: list[int] = []
    literals: list[bytes] = []
    for row in frame.collect():
        passed.append(row[0])
        literals += [literal_of(value) for value in row[1:]]
    return passed, literals


def _without_zones(frame: DataFrame) -> DataFrame:
    """Points in time as their text in UTC, the session's time zone."""
    zoned = [isinstance(field.dataType, TimestampType) for field in frame.schema.fields]
    if not any(zoned):
        return frame
    names = [f"c{at}" for at in range(len(zoned))]
    return frame.toDF(*names).selectExpr(
        *(f"CAST({name} AS TIMESTAMP_NTZ)" if has_zone else name for name, has_zone in zip(names, zoned, strict=True))
    )
