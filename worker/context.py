"""What one run of a unit works with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from proto import config_pb2, relay_pb2
from worker.connection import Endpoint
from worker.relay.relay import Relay
from worker.rules import Rules
from worker.spark import SparkRunner
from worker.table import Table


class ChunkDispenser(Protocol):
    """What the snapshot unit offers to its chunk readers, through the lane service."""

    def take(self, who: relay_pb2.TaskIdentity, os_pid: int) -> relay_pb2.TakeChunkResponse: ...

    def report(self, report: relay_pb2.ChunkReport) -> bool:
        """True: the reader is to stop."""
        ...


class Registry(Protocol):
    """Where the snapshot unit registers its dispenser while it runs."""

    def register_dispenser(self, task: str, epoch: int, dispenser: ChunkDispenser) -> None: ...

    def unregister(self, task: str, epoch: int) -> None: ...


@dataclass(frozen=True, slots=True)
class SubTaskContext:
    """One run of one subtask: made by worker/subtask.py with a fresh epoch, handed to each unit.

    ``tables``: the structures that the rules let through, as they were when the subtask first
    started (kept in the meta schema), so that a restart decodes old events with the old structure.
    """

    config: config_pb2.SubTaskConfig
    source: config_pb2.SourceConfig
    epoch: int
    rules: Rules
    tables: tuple[Table, ...]
    source_endpoint: Endpoint
    target_endpoint: Endpoint
    relay: Relay
    spark: SparkRunner
    lane_address: str
    registry: Registry
