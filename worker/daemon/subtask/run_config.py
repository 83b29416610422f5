"""Adapts a subtask's configuration to the target of a run. Pure."""

from __future__ import annotations

from shardmerge.proto import config_pb2
from shardmerge.proto.config import defaults
from shardmerge.worker.core.mysql.target_dialect import TargetDialect

MOST_BATCH_DIVISOR = 4**5
"""A batch of the default size then has 20 rows."""


def with_smaller_batches(config: config_pb2.SubTaskConfig, divisor: int) -> config_pb2.SubTaskConfig:
    """``config`` with the lanes' batches and the history's chunks divided by ``divisor``, for a target that had no
    memory for one of them; 1 changes nothing."""
    if divisor == 1:
        return config
    found = config_pb2.SubTaskConfig()
    found.CopyFrom(config)
    found.replicate.batch_rows = max((config.replicate.batch_rows or defaults.BATCH_ROWS) // divisor, 1)
    found.replicate.batch_bytes = max((config.replicate.batch_bytes or defaults.BATCH_BYTES) // divisor, 1)
    found.chunk_divisor = divisor
    return found


def with_target_facts(config: config_pb2.SubTaskConfig, dialect: TargetDialect) -> config_pb2.SubTaskConfig:
    """``config`` with what its rules depend on at a target of this dialect. It is recorded with the rules, because the
    keys of rows that a lane has written depend on it."""
    if dialect.has_charsets:
        return config
    found = config_pb2.SubTaskConfig()
    found.CopyFrom(config)
    found.text_as_utf8 = True
    return found
