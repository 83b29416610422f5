"""The unit of a finished subtask: reports its final status, from its records at the target.

No process needs to keep this status: a worker that starts, or takes the source over, reads it again.
"""

from __future__ import annotations

from collections.abc import Iterable

from shardmerge.proto import worker_pb2 as pb
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.snapshot.chunk_records import TableReport
from shardmerge.worker.unit.contract import Finished, Outcome


class FinishedUnit:
    """A ProcessUnit whose work is done; ``status``: its final status."""

    def __init__(self, status: pb.LoadStatus | pb.SyncStatus) -> None:
        self._status = status

    def run(self, stop: StopSignal) -> Outcome:
        return Finished()

    def status(self) -> pb.LoadStatus | pb.SyncStatus:
        return self._status

    def activity(self) -> str:
        return ""


def final_load_status(tables: Iterable[TableReport]) -> pb.LoadStatus:
    """The final status of a finished snapshot."""
    status = pb.LoadStatus(progress="100.00 %", plan_complete=True)
    for table in tables:
        status.tables.append(
            pb.TableProgress(
                source_table=table.source_table,
                target_table=table.target_table,
                finished_rows=table.rows,
                total_rows=table.rows,
                finished_chunks=table.chunks,
                total_chunks=table.chunks,
                finished_bytes=table.bytes,
                seconds=table.seconds,
            )
        )
        status.finished_rows += table.rows
        status.total_rows += table.rows
        status.finished_bytes += table.bytes
        status.total_bytes += table.bytes
        status.finished_chunks += table.chunks
        status.total_chunks += table.chunks
    return status
