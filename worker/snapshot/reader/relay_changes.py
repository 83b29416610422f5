"""Decodes a shard table's row changes between two offsets of the relay log, read through the worker's services."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from shardmerge.proto import relay_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc.coded_errors import error_from_proto
from shardmerge.worker.binlog.decoder import BlockDecoder
from shardmerge.worker.core.position import Located, RelayOffset
from shardmerge.worker.core.row_change import RowChange
from shardmerge.worker.core.table_plan import TablePlan
from shardmerge.worker.snapshot.reader.worker_link import WorkerClient


def changes_between(
    link: WorkerClient,
    decoder: BlockDecoder,
    start: RelayOffset,
    end: Located,
    *,
    changed: Callable[[], ShardmergeError],
    ended: Callable[[], ShardmergeError],
) -> Iterator[RowChange]:
    """Every change that ``decoder`` resolves from ``start`` up to ``end``, in order.

    Raises ``changed()`` when the relay log is another one than that of ``end``, ``ended()`` when the stream ends
    early, the error by which the relay log failed, and the link's and the decoder's errors.
    """
    for frame in link.subscribe(start, end.offset):
        match frame.WhichOneof("frame"):
            case "opened":
                if frame.opened.relay_id != end.relay_id:
                    raise changed()
                decoder.open(frame.opened.format_description)
            case "block":
                yield from decoder.decode(frame.block.events)
            case "closed":
                if frame.closed.reason == relay_pb2.Closed.REASON_UNTIL:
                    return
                if frame.closed.reason == relay_pb2.Closed.REASON_FAILED:
                    raise error_from_proto(frame.closed.error)
                break
            case _:
                pass
    raise ended()


def only_table(plan: TablePlan) -> Callable[[str, str], TablePlan | None]:
    """The plan lookup of a decoder that decodes events of the plan's table only."""
    table = plan.table

    def resolve(schema: str, name: str) -> TablePlan | None:
        return plan if (schema, name) == (table.schema, table.name) else None

    return resolve
