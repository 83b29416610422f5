"""The two streams of a subtask: its own, and the short one of tables that are joining it."""

from __future__ import annotations

import enum

from proto import relay_pb2


class Stream(enum.Enum):
    """Whose lanes, whose checkpoints. The value: as Spark tasks name it."""

    MAIN = relay_pb2.STREAM_MAIN
    JOIN = relay_pb2.STREAM_JOIN

    @property
    def table(self) -> str:
        """The meta schema's table of its lanes' checkpoints."""
        return "lane_checkpoint" if self is Stream.MAIN else "join_checkpoint"

    @property
    def verb(self) -> str:
        """What its Spark job is called."""
        return "replicate" if self is Stream.MAIN else "join"
