"""Tests how a configuration is adapted to the target of a run."""

from __future__ import annotations

from shardmerge.proto import config_pb2
from shardmerge.proto.config import defaults
from shardmerge.worker.core.mysql.target_dialect import ServerKind, TargetDialect
from shardmerge.worker.daemon.subtask.run_config import MOST_BATCH_DIVISOR, with_smaller_batches, with_target_facts


def test_batches_are_divided() -> None:
    config = config_pb2.SubTaskConfig(task="t", replicate=config_pb2.ReplicateConfig(batch_rows=100))
    smaller = with_smaller_batches(config, 4)
    assert (smaller.replicate.batch_rows, smaller.replicate.batch_bytes) == (25, defaults.BATCH_BYTES // 4)
    assert smaller.chunk_divisor == 4
    assert config.replicate.batch_rows == 100
    assert with_smaller_batches(config, MOST_BATCH_DIVISOR).replicate.batch_rows == 1
    assert with_smaller_batches(config, 1) is config


def test_text_is_utf8_for_a_target_without_character_sets() -> None:
    config = config_pb2.SubTaskConfig(task="t")
    assert with_target_facts(config, TargetDialect(ServerKind.TIDB, (8, 4, 0))).text_as_utf8
    for kind in (ServerKind.MARIADB, ServerKind.MYSQL):
        assert with_target_facts(config, TargetDialect(kind, (8, 4, 0))) is config
    assert not config.text_as_utf8
