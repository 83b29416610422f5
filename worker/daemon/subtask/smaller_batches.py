"""Makes the transactions of a run smaller, for a target that had no memory for one of them. Pure."""

from __future__ import annotations

from shardmerge.proto import config_pb2
from shardmerge.proto.config import defaults

MOST_BATCH_DIVISOR = 4**5
"""A batch of the default size then has 20 rows."""


def with_smaller_batches(config: config_pb2.SubTaskConfig, divisor: int) -> config_pb2.SubTaskConfig:
    """``config`` with the lanes' batches divided by ``divisor``; 1 changes nothing."""
    if divisor == 1:
        return config
    found = config_pb2.SubTaskConfig()
    found.CopyFrom(config)
    found.replicate.batch_rows = max((config.replicate.batch_rows or defaults.BATCH_ROWS) // divisor, 1)
    found.replicate.batch_bytes = max((config.replicate.batch_bytes or defaults.BATCH_BYTES) // divisor, 1)
    return found
