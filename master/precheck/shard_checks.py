"""Compares the shard tables of one target across all sources of a task; part of the item `schema_of_shard_tables`.

Each worker reads the structures of its source's shard tables. One of them compares all, because it knows what a type
holds. Tables of equal structure count once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shardmerge.master.precheck.asked_sources import CheckItem, PlacedSubtask
from shardmerge.master.state import State
from shardmerge.master.workers.client import Workers
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import errors
from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.errors import ShardmergeError

_ITEM = CheckItem("schema_of_shard_tables", "target tables hold their shard tables")
_MOST_BYTES = 8 << 20
"""Of the structures in one request."""


@dataclass(frozen=True, slots=True)
class ShardChecks:
    """The comparison for one command. ``as_recorded``: the subtasks continue from their records, if there are any."""

    state: State
    workers: Workers
    seconds: float
    as_recorded: bool

    def run(
        self, subtasks: Sequence[config.SubTaskConfig], family: Sequence[config.SubTaskConfig]
    ) -> list[pb.CheckResult]:
        """Failures and warnings for the targets of ``subtasks``; ``family``: the subtasks of all of the task's sources.

        Raises nothing: a source that cannot be asked gets a warning.
        """
        checked = [one.source_id for one in subtasks if not {"all", _ITEM.name}.intersection(one.ignore_checking_items)]
        if not checked:
            return []
        asked = {one.source_id: one for one in (*family, *subtasks)}
        results: list[pb.CheckResult] = []
        holders: list[PlacedSubtask] = []
        for source, subtask in asked.items():
            worker = self.state.worker_of(source)
            if worker is not None and source in self.state.sources:
                holders.append(PlacedSubtask(subtask, self.state.sources[source].value.config, worker))
            elif source not in checked:  # of a checked source each item fails
                results.append(_ITEM.unasked(source, errors.master.SOURCE_UNBOUND(source=source)))
        started = {one.source_id for one in subtasks}

        def read(holder: PlacedSubtask) -> Sequence[pb.ShardStructure] | ShardmergeError:
            recorded = self.as_recorded or holder.source.source_id not in started
            request = pb.CheckShardsRequest(source=holder.source, subtask=holder.subtask, as_recorded=recorded)
            try:
                return self.workers.call(holder.worker, lambda stub: stub.CheckShards, request, self.seconds).structures
            except ShardmergeError as error:
                return error

        found: list[pb.ShardStructure] = []
        answering: list[PlacedSubtask] = []
        for holder, answer in zip(holders, self.workers.for_each(holders, read), strict=True):
            if isinstance(answer, ShardmergeError):
                results.append(_ITEM.unasked(holder.source.source_id, answer))
            else:
                found += answer
                answering.append(holder)
        for part in batches(found, checked):
            results += self._compare(part, answering, checked)
        return results

    def _compare(
        self, structures: Sequence[pb.ShardStructure], holders: Sequence[PlacedSubtask], checked: Sequence[str]
    ) -> Sequence[pb.CheckResult]:
        sources = {one.source for one in structures}
        holder = next(one for one in holders if one.source.source_id in sources)
        request = pb.CheckShardsRequest(
            source=holder.source,
            subtask=holder.subtask,
            family=[one.subtask for one in holders if one.source.source_id in sources],
            structures=structures,
            checked=checked,
        )
        try:
            return self.workers.call(holder.worker, lambda stub: stub.CheckShards, request, self.seconds).results
        except ShardmergeError as error:
            return [_ITEM.unasked(next(source for source in checked if source in sources), error)]


def batches(structures: Sequence[pb.ShardStructure], checked: Sequence[str]) -> Iterator[list[pb.ShardStructure]]:
    """The structures to compare, those of one target together: of targets with several, of which one is of a source
    that is ``checked``. Pure."""
    targets: dict[str, list[pb.ShardStructure]] = {}
    for one in structures:
        targets.setdefault(one.target, []).append(one)
    part: list[pb.ShardStructure] = []
    size = 0
    for group in targets.values():
        if len(group) < 2 or not any(one.source in checked for one in group):
            continue
        its = sum(one.ByteSize() for one in group)
        if part and size + its > _MOST_BYTES:
            yield part
            part, size = [], 0
        part += group
        size += its
    if part:
        yield part
