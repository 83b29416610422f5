"""What a shard table's events between two places of the relay log say, asked through the worker's services."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from proto import relay_pb2, rpc
from proto.errors import ShardmergeError
from worker.binlog.decoder import BlockDecoder
from worker.plan import TablePlan
from worker.position import RelayOffset
from worker.rows import RowChange
from worker.snapshot.link import Located, ReaderLink


def changes_between(
    link: ReaderLink,
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
                    raise rpc.error_from_proto(frame.closed.error)
                break
            case _:
                pass
    raise ended()


def only(plan: TablePlan) -> Callable[[str, str], TablePlan | None]:
    """For a decoder that is to see events of the plan's table alone."""
    table = plan.table

    def resolve(schema: str, name: str) -> TablePlan | None:
        return plan if (schema, name) == (table.schema, table.name) else None

    return resolve
