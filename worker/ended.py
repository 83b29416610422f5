"""A subtask that has nothing left to do: what it came to, from its records at the target.

No process needs to remember it: a worker that starts, or takes the source over, reads it again.
"""

from __future__ import annotations

from collections.abc import Iterable

from proto import worker_pb2 as pb
from worker.snapshot.records import TableReport
from worker.unit import Finished, Outcome, StopSignal


class EndedUnit:
    """A ProcessUnit (see worker/unit.py) whose work is done; ``status``: its last word."""

    def __init__(self, status: pb.LoadStatus | pb.SyncStatus) -> None:
        self._status = status

    def run(self, stop: StopSignal) -> Outcome:
        return Finished()

    def status(self) -> pb.LoadStatus | pb.SyncStatus:
        return self._status

    def doing(self) -> str:
        return ""


def load_report(tables: Iterable[TableReport]) -> pb.LoadStatus:
    """A finished snapshot's last word."""
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
