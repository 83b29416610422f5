"""The driver's side of transforms: evaluates expressions for lanes and chunk readers."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import ipc

from shardmerge.proto import errors, relay_pb2
from shardmerge.worker.rules.transform.client import as_stream
from shardmerge.worker.rules.transform.expressions import Expressions
from shardmerge.worker.rules.transform.projection import NoResult, projection


def evaluate(expressions: Expressions, rows: bytes) -> relay_pb2.EvaluateResponse:
    """Evaluate the expressions over ``rows``, an Arrow IPC stream. Several threads may call it at the same time.

    Raises ROWS_UNREADABLE, EVALUATION_LOST, and the errors of Py4J if the JVM does not answer.
    """
    checked = _checked(expressions.schema, rows)
    try:
        made = projection(expressions.schema, expressions.items, expressions.filter).of(checked)
    except NoResult as reason:
        return relay_pb2.EvaluateResponse(refused=str(reason))
    return relay_pb2.EvaluateResponse(rows=made)


def _checked(schema: pa.Schema, rows: bytes) -> bytes:
    """The rows, decoded, validated and encoded again, so that the JVM reads only validated bytes. Raises
    ROWS_UNREADABLE."""
    try:
        with ipc.open_stream(rows) as reader:
            if not reader.schema.equals(schema):
                raise errors.replicate.ROWS_UNREADABLE(reason="their columns are not those of the expressions")
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise errors.replicate.ROWS_UNREADABLE(reason=type(error).__name__) from error
    return as_stream(table)
