"""Runs the pre-checks of a task on the workers that would do its work, from where the data will be read."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from shardmerge.master.precheck.duplicate_keys import KeyChecks
from shardmerge.master.precheck.shard_checks import ShardChecks
from shardmerge.master.state import State
from shardmerge.master.workers.client import Workers
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import errors
from shardmerge.proto import worker_pb2 as pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc.coded_errors import error_from_proto

ALL_ITEMS = "all"
"""In ``ignore-checking-items``: make no check."""

_OF_TARGET = "target_indexes"
"""The item whose findings are about one target table, whatever the source."""

_SECURITY = (
    "`security` (`ssl-ca: FILE`, or `allow-public-key-retrieval: true` for caching_sha2_password; any program that "
    "answers at that address can then read the password)"
)
_START = (
    "`allowed-networks` of dm-worker and dm-master; then repeat `dmctl start-task <file>`, with --remove-meta and -s "
    "if the command had them, or another error has printed them for it."
)
_NO_LOGIN = {
    errors.check.TARGET_CONNECTION.code: "Nothing was started. Correct what the reason names: host, port, user and "
    f"password of `target-database` in the task file, its {_SECURITY}, the account at the target, the network between "
    f"worker and target, or {_START}",
    errors.check.SOURCE_CONNECTION.code: "Nothing was started. Correct what the reason names: host, port, user and "
    f"password in the source's file, its {_SECURITY}, with `dmctl operate-source update <source-file>`, the account at "
    f"the source, the network between worker and source, or {_START}",
}
"""The ways out by code, for a task that does not exist yet."""

_OVER_SOURCES = frozenset({"schema_of_shard_tables", "duplicate_keys"})
"""The items that compare several sources: they cannot ask a source without a login."""


@dataclass(frozen=True, slots=True)
class Checks:
    """Every check result of a task. A check that could not be made counts as a failure."""

    results: tuple[pb.CheckResult, ...]

    @property
    def failed(self) -> int:
        return sum(one.state == pb.CHECK_STATE_FAIL for one in self.results)

    @property
    def passed(self) -> int:
        return sum(one.state == pb.CHECK_STATE_PASS for one in self.results)

    @property
    def by_state(self) -> tuple[pb.CheckResult, ...]:
        """All results, the failures first, then the warnings."""
        return tuple(sorted(self.results, key=lambda one: -one.state))

    def failures_and_warnings(self) -> tuple[pb.CheckResult, ...]:
        """Failures and warnings."""
        return tuple(one for one in self.results if one.state != pb.CHECK_STATE_PASS)


def check_subtasks(
    subtasks: Sequence[config.SubTaskConfig],
    state: State,
    workers: Workers,
    seconds: float,
    *,
    as_recorded: bool = False,
    family: Sequence[config.SubTaskConfig] = (),
    keys: bool = True,
    prove_keys: bool = False,
) -> Checks:
    """Run every check of every subtask on the worker its source is bound to, all at the same time. ``as_recorded``: the
    subtasks continue from their records, if there are any. ``family``: the subtasks of all of the task's sources, if
    there are more. ``keys``: the item `duplicate_keys` too; ``prove_keys``: all keys of the shard tables are read for
    it.

    Raises ``errors.master.SOURCE_UNKNOWN``. A source without a live worker, or a worker that does not
    answer within ``seconds``, is a failed check with the error's code.
    """
    for subtask in subtasks:
        if subtask.source_id not in state.sources:
            raise errors.master.SOURCE_UNKNOWN(source=subtask.source_id)

    all_subtasks = family or subtasks

    def check(subtask: config.SubTaskConfig) -> list[pb.CheckResult]:
        if ALL_ITEMS in subtask.ignore_checking_items:
            return []
        source = subtask.source_id
        try:
            answer = workers.check_subtask(
                state.holder_of(source),
                state.sources[source].value.config,
                subtask,
                seconds,
                as_recorded=as_recorded,
                family=all_subtasks,
                together=[one.source_id for one in subtasks],
            )
        except ShardmergeError as error:
            return [as_result(error, source)]
        return flattened(answer, source)

    results = [one for some in workers.for_each(subtasks, check) for one in some]
    results += ShardChecks(state, workers, seconds, as_recorded).run(subtasks, all_subtasks)
    if keys:
        results += KeyChecks(state, workers, seconds).run(subtasks, all_subtasks, proven=prove_keys)
    new = {one.source_id for one in subtasks if (one.task, one.source_id) not in state.subtasks}
    return Checks(tuple(_once_per_target(with_ways_to_start(results, new))))


def _once_per_target(results: Iterable[pb.CheckResult]) -> Iterator[pb.CheckResult]:
    """Without the findings about a target table that an earlier source has too."""
    seen: set[str] = set()
    for one in results:
        if one.name == _OF_TARGET and one.error_msg:
            if one.error_msg in seen:
                continue
            seen.add(one.error_msg)
        yield one


def flattened(answer: pb.CheckResponse, source: str) -> list[pb.CheckResult]:
    """An answer's results, each with its source, and its errors as failed checks."""
    results: list[pb.CheckResult] = []
    for one in answer.results:
        result = pb.CheckResult()
        result.CopyFrom(one)
        result.source = result.source or source
        results.append(result)
    return results + [as_result(error_from_proto(error), source) for error in answer.errors]


def with_ways_to_start(results: Sequence[pb.CheckResult], new: Collection[str]) -> list[pb.CheckResult]:
    """The results with the ways out of a task that does not exist yet at the sources ``new``. Those of the errors of a
    login are for a task that is paused by it."""
    refused = {one.source: one.name for one in results if one.source in new and one.code in _NO_LOGIN}
    found: list[pb.CheckResult] = []
    for one in results:
        result = pb.CheckResult()
        result.CopyFrom(one)
        if one.source in refused:
            is_unasked = one.name in _OVER_SOURCES and one.code == errors.check.CHECK_BROKEN.code
            other = f"See item {refused[one.source]}." if is_unasked else one.instruction
            result.instruction = _NO_LOGIN.get(one.code, other)
        found.append(result)
    return found


def as_result(error: ShardmergeError, source: str) -> pb.CheckResult:
    """A failed check for an error that prevented it."""
    return pb.CheckResult(
        name=error.spec.name,
        desc="the check could be made",
        state=pb.CHECK_STATE_FAIL,
        source=source,
        error_msg=str(error),
        instruction=error.workaround,
        code=error.code,
    )
