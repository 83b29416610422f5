"""The check item `duplicate_keys`: keys that several shard tables of one target share, at any of its sources.

By sample: each worker takes keys at random places of its tables' indexes, and every worker looks up the others' keys.
By proof: the workers read all keys in one order, and their streams are merged here in bounded memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from shardmerge.master.precheck.asked_sources import CheckItem, PlacedSubtask
from shardmerge.master.precheck.key_merge import (
    SHOWN,
    KeyGroup,
    groups,
    opened,
    prove,
    ranges_disjoint,
    sharing_a_range,
    table_of,
)
from shardmerge.master.state import State
from shardmerge.master.workers.client import Workers
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import errors
from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc.coded_errors import same_error

_ITEM = CheckItem("duplicate_keys", "no two shard tables of a target have rows of the same key")


@dataclass(frozen=True, slots=True)
class KeyChecks:
    """The check for one command."""

    state: State
    workers: Workers
    seconds: float

    def run(
        self, subtasks: Sequence[config.SubTaskConfig], family: Sequence[config.SubTaskConfig], *, proven: bool
    ) -> list[pb.CheckResult]:
        """The results for the tables of ``subtasks``; ``family``: the subtasks of all of the task's sources.

        Raises nothing: a source that cannot be checked gets a warning. Tables of a task that copies no rows are not
        checked.
        """
        wanted = [one.source_id for one in subtasks if not {"all", _ITEM.name}.intersection(one.ignore_checking_items)]
        copying = [one for one in family if one.mode != config.TASK_MODE_INCREMENTAL]
        if not wanted:
            return []
        if not copying:
            why = "task-mode incremental copies no rows"
            return [_passed(source, why) for source in wanted]
        holders: dict[str, PlacedSubtask] = {}
        results: list[pb.CheckResult] = []
        for one in copying:
            holder = self.state.worker_of(one.source_id)
            if holder is None or one.source_id not in self.state.sources:
                results.append(_ITEM.unasked(one.source_id, errors.master.SOURCE_UNBOUND(source=one.source_id)))
                continue
            holders[one.source_id] = PlacedSubtask(one, self.state.sources[one.source_id].value.config, holder)
        sampled: list[pb.KeyShard] = []
        for answer in self.workers.for_each(list(holders.values()), self._sample):
            if isinstance(answer, pb.CheckResult):
                results.append(answer)
            else:
                sampled += answer.shards
        # A source that is not checked now and could not be asked is reported as well: its keys may be duplicates.
        found = groups(sampled)
        results += self._judged(found, holders, wanted, proven=proven)
        reported = {result.source for result in results}
        met = {source for group in found for source in group.sources}
        return results + [
            _passed(source, "reported with the other sources of its targets" if source in met else "nothing to compare")
            for source in wanted
            if source not in reported
        ]

    def _judged(
        self, found: Sequence[KeyGroup], holders: Mapping[str, PlacedSubtask], wanted: Sequence[str], *, proven: bool
    ) -> list[pb.CheckResult]:
        results: list[pb.CheckResult] = []
        proven_for: dict[str, list[str]] = {source: [] for source in wanted}
        disjoint = [group for group in found if ranges_disjoint(group)]
        together = [group for group in found if not ranges_disjoint(group)]
        for group in together:
            source = _one_of(group, wanted)
            tables = sharing_a_range(group)
            if tables:
                shared = errors.check_data.KEY_RANGES_OVERLAP(
                    target=group.target_name, column=group.columns[0], tables=", ".join(tables[:SHOWN])
                )
                results.append(_ITEM.found(source, shared, pb.CHECK_STATE_WARN))
        if proven:
            judged = [(group, self._prove(group, holders)) for group in together]
        else:
            judged = list(zip(together, self._look_up(together, holders), strict=True))
        for group, outcome in judged:
            source = _one_of(group, wanted)
            if isinstance(outcome, ShardmergeError):
                fails = same_error(outcome, errors.check_data.DUPLICATE_KEYS)
                state = pb.CHECK_STATE_FAIL if fails else pb.CHECK_STATE_WARN
                results.append(_ITEM.found(source, outcome, state))
            elif source in proven_for:
                proven_for[source].append(f"{group.target_name} ({', '.join(group.columns)}): {outcome}")
        for group in disjoint:
            source = _one_of(group, wanted)
            ever = all(shard.mapped for shard in group.shards)
            if source in proven_for:
                why = "`partition id` keeps the shard tables apart" if ever else "their ranges are disjoint now"
                proven_for[source].append(f"{group.target_name} ({', '.join(group.columns)}): {why}")
        bad = {result.source for result in results}
        return results + [
            _passed(source, "; ".join(texts)) for source, texts in proven_for.items() if texts and source not in bad
        ]

    def _sample(self, holder: PlacedSubtask) -> pb.CheckKeysResponse | pb.CheckResult:
        request = pb.CheckKeysRequest(source=holder.source, subtask=holder.subtask)
        try:
            return self.workers.call(holder.worker, lambda stub: stub.CheckKeys, request, self.seconds)
        except ShardmergeError as error:
            return _ITEM.unasked(holder.source.source_id, error)

    # --- sampled

    def _look_up(self, found: Sequence[KeyGroup], holders: Mapping[str, PlacedSubtask]) -> list[str | ShardmergeError]:
        """The outcome for each group."""
        samples = [shard for group in found for shard in group.shards]
        clashes: list[pb.KeyClash] = []
        looked_up = 0
        broken: dict[str, ShardmergeError] = {}

        def ask(holder: PlacedSubtask) -> pb.CheckKeysResponse | ShardmergeError:
            request = pb.CheckKeysRequest(source=holder.source, subtask=holder.subtask, looked_for=samples)
            try:
                return self.workers.call(holder.worker, lambda stub: stub.CheckKeys, request, self.seconds)
            except ShardmergeError as error:
                return error

        asked = list(holders.values()) if samples else []
        for holder, answer in zip(asked, self.workers.for_each(asked, ask), strict=True):
            if isinstance(answer, ShardmergeError):
                broken[holder.source.source_id] = answer
            else:
                clashes += answer.clashes
                looked_up += answer.looked_up
        return [_of_samples(group, clashes, broken) for group in found]

    # --- proven

    def _prove(self, group: KeyGroup, holders: Mapping[str, PlacedSubtask]) -> str | ShardmergeError:
        try:
            streams = [
                stream
                for source in group.sources
                if (stream := opened(source, self._read(group, holders[source]))) is not None
            ]
            forms = sorted({stream.form for stream in streams})
            if len(forms) > 1:
                return _not_compared(group, f"the sources sort it differently: {'; '.join(forms)}")
            proof = prove(streams)
        except ShardmergeError as error:
            if same_error(error, errors.check_data.KEYS_NOT_COMPARED):
                return error
            return _not_compared(group, str(error), error.workaround)
        if proof.twice:
            return _duplicates(group, proof.shown, proof.twice - len(proof.shown))
        return f"all {proof.read} keys were read, none exists twice"

    def _read(self, group: KeyGroup, holder: PlacedSubtask) -> Iterator[pb.KeyBatch]:
        names = next(
            (one.target_schema, one.target_table, list(one.columns))
            for one in group.shards
            if one.source == holder.source.source_id
        )
        schema, table, columns = names
        request = pb.ReadKeysRequest(
            source=holder.source,
            subtask=holder.subtask,
            target_schema=schema,
            target_table=table,
            columns=columns,
            digests=not all(shard.along_index for shard in group.shards),
        )
        return self.workers.read_keys(holder.worker, request)


def _one_of(group: KeyGroup, wanted: Sequence[str]) -> str:
    """The source under which a group's result is reported: the first one that is checked."""
    return next((source for source in group.sources if source in wanted), group.sources[0])


def _of_samples(
    group: KeyGroup, clashes: Sequence[pb.KeyClash], broken: Mapping[str, ShardmergeError]
) -> str | ShardmergeError:
    mine = [
        clash
        for clash in clashes
        if (clash.other.target_schema.lower(), clash.other.target_table.lower())
        == (group.target[0].lower(), group.target[1].lower())
        and frozenset(clash.other.columns) == frozenset(group.columns)
    ]
    if mine:
        shown = dict.fromkeys(
            f"{clash.key.values[0]} in {' and '.join(sorted((table_of(clash.sampled), table_of(clash.other))))}"
            for clash in mine
        )
        return _duplicates(group, list(shown)[:SHOWN], len(shown) - SHOWN)
    for source in group.sources:
        if source in broken:
            return _not_compared(group, str(broken[source]), broken[source].workaround)
    formless = next((shard for shard in group.shards if not shard.form), None)
    if formless is not None:
        return _not_compared(group, formless.why or "a column's values have several texts")
    forms = {shard.form for shard in group.shards}
    if len(forms) > 1:
        return _not_compared(group, f"the shard tables' columns are of different types: {'; '.join(sorted(forms))}")
    count = sum(len(shard.samples) for shard in group.shards)
    return f"{count} keys at random places of {len(group.shards)} shard tables are in no other one"


def _duplicates(group: KeyGroup, shown: Sequence[str], more: int) -> ShardmergeError:
    return errors.check_data.DUPLICATE_KEYS(
        target=group.target_name,
        columns=", ".join(group.columns),
        found="; ".join(shown),
        more=f" and {more} more" if more > 0 else "",
    )


def _not_compared(group: KeyGroup, reason: str, way_out: str = "") -> ShardmergeError:
    return errors.check_data.KEYS_NOT_COMPARED(
        target=group.target_name,
        columns=", ".join(group.columns),
        reason=reason,
        way_out=way_out or "No data is lost: the task stops at the first key that exists twice.",
    )


def _passed(source: str, why: str) -> pb.CheckResult:
    return pb.CheckResult(name=_ITEM.name, desc=f"{_ITEM.description}: {why}", state=pb.CHECK_STATE_PASS, source=source)
