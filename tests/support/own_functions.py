"""Functions as a user writes them, and some with which something is wrong."""

from __future__ import annotations

import time
import zlib
from os import kill, removedirs
from subprocess import run

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["kill", "removedirs", "run"]
"""What this module imports: a task file must not reach it."""


def twice(batch: pa.RecordBatch) -> pa.Array:
    return pc.multiply(batch.column("n"), 2)


def positive_twice(batch: pa.RecordBatch) -> pa.RecordBatch:
    passes = pc.greater(batch.column("n"), 0)
    return pa.RecordBatch.from_arrays([passes, pc.multiply(batch.column("n"), 2)], names=["passes", "doubled"])


def unlucky(batch: pa.RecordBatch) -> pa.Array:
    if 13 in batch.column("n").to_pylist():
        raise ValueError("13 is a secret")
    return twice(batch)


def exits(batch: pa.RecordBatch) -> pa.Array:
    raise SystemExit(3)


def one_too_many(batch: pa.RecordBatch) -> pa.Array:
    return pa.array([0] * (batch.num_rows + 1), pa.int64())


def other_type(batch: pa.RecordBatch) -> pa.Array:
    return pa.array(["1"] * batch.num_rows, pa.string())


def no_array(batch: pa.RecordBatch) -> object:
    return [1] * batch.num_rows


def null_of_zero(batch: pa.RecordBatch) -> pa.Array:
    return pa.array([None if n == 0 else n for n in batch.column("n").to_pylist()], pa.int64())


def wants_two(batch: pa.RecordBatch, more: object) -> object:
    return batch, more


async def later(batch: pa.RecordBatch) -> object:
    return batch


clock = time.time


def checksum(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a text of all values of a row; a third of the rows does not pass."""
    columns = [column.to_pylist() for column in batch.columns]
    texts = [repr([column[at] for column in columns]) for at in range(batch.num_rows)]
    sums = [zlib.crc32(text.encode()) for text in texts]
    passes = pa.array([each % 3 != 0 for each in sums], pa.bool_())
    return pa.RecordBatch.from_arrays([passes, pa.array([f"{each:x}" for each in sums])], names=["passes", "sum"])
