"""The two streams of a subtask: the main stream, and the short-lived stream of tables that join it."""

from __future__ import annotations

import enum

from shardmerge.proto import relay_pb2


class Stream(enum.Enum):
    """The stream to which lanes and checkpoints belong. The value: as Spark tasks name it."""

    MAIN = relay_pb2.STREAM_MAIN
    JOIN = relay_pb2.STREAM_JOIN

    @property
    def table(self) -> str:
        """The meta schema's table with the checkpoints of its lanes."""
        return "lane_checkpoint" if self is Stream.MAIN else "join_checkpoint"

    @property
    def job_name(self) -> str:
        """The name of its Spark job."""
        return "replicate" if self is Stream.MAIN else "join"
