"""history: what happened to a task, from the entries and samples in etcd. Any master answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardmerge.master.store import Store
from shardmerge.master.task_history.block_store import read_samples
from shardmerge.proto import errors, etcd_keys
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto import state_pb2 as state_pb
from shardmerge.proto.etcd import Etcd
from shardmerge.proto.task_history.event import HistoryEntryKind
from shardmerge.proto.task_history.record import decode

SAMPLE = "sample"
_KINDS = (*HistoryEntryKind, SAMPLE)


@dataclass(frozen=True, slots=True)
class HistoryCommand:
    etcd: Etcd
    store: Store

    def query(self, request: pb.HistoryRequest) -> pb.HistoryResponse:
        """Raises BAD_REQUEST, TASK_UNKNOWN for a task that neither exists nor has a history."""
        for kind in request.kinds:
            if kind not in _KINDS:
                raise errors.master.BAD_REQUEST(reason=f"history: a kind is one of {', '.join(_KINDS)}")
        found = self.etcd.get_prefix(etcd_keys.history_entries(request.task)).records
        samples, unreadable_blocks = read_samples(self.etcd, request.task)
        exists = bool(self.store.read().sources_of(request.task))
        if not found and not samples and not exists:
            raise errors.master.TASK_UNKNOWN(task=request.task)
        records = [(record.key, decode(state_pb.HistoryRecord, record.value)) for record in found]
        entries = selected([(key, record) for key, record in records if record is not None], request)
        shown = entries[-request.limit :] if request.limit else entries
        wants_samples = not request.kinds or SAMPLE in request.kinds
        return pb.HistoryResponse(
            result=True,
            entries=shown,
            samples=[one for one in samples if one.at >= request.since] if wants_samples else [],
            older=len(entries) - len(shown),
            unreadable=sum(record is None for _, record in records) + unreadable_blocks,
            exists=exists,
        )


def selected(
    records: Sequence[tuple[str, state_pb.HistoryRecord]], request: pb.HistoryRequest
) -> list[state_pb.HistoryRecord]:
    """The records, with their keys, that the request asks for, by the time of their last event. An entry of the whole
    task belongs to each source. Pure."""
    sources = frozenset(request.sources)
    kinds = frozenset(request.kinds)
    wanted = [
        (record.last, record.first, key, record)
        for key, record in records
        if record.last >= request.since
        and (not kinds or record.kind in kinds)
        and (not sources or not record.sources or sources.intersection(record.sources))
    ]
    return [record for *_, record in sorted(wanted, key=lambda one: one[:3])]
