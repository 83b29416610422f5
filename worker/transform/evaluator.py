"""Transforms evaluated: the driver's end, which answers lanes and chunk readers."""

from __future__ import annotations

from pyarrow import ipc

from proto import relay_pb2
from worker.transform.projection import NoResult, projection


def evaluate(request: relay_pb2.EvaluateRequest) -> relay_pb2.EvaluateResponse:
    """What the items and the filter make of the rows; several threads at a time.

    Raises what the JVM raises where it is not about the expressions.
    """
    schema = ipc.open_stream(request.rows).schema
    try:
        rows = projection(schema, tuple(request.items), request.filter).of(request.rows)
    except NoResult as reason:
        return relay_pb2.EvaluateResponse(refused=str(reason))
    return relay_pb2.EvaluateResponse(rows=rows)
