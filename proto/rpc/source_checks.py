"""The error of a source whose checks have failed, the same at the master and at the worker."""

from __future__ import annotations

from collections.abc import Iterable

from shardmerge.proto import errors, worker_pb2
from shardmerge.proto.errors import ShardmergeError

_HINT = "Correct it and repeat the command."


def source_failure(results: Iterable[worker_pb2.CheckResult], source: str) -> ShardmergeError | None:
    """SOURCE_CHECK_FAILED with the first check that failed; None when none did."""
    failure = next((one for one in results if one.state == worker_pb2.CHECK_STATE_FAIL), None)
    if failure is None:
        return None
    return errors.master.SOURCE_CHECK_FAILED(
        source=source,
        reason=f"[{failure.code}] {failure.name}: {failure.error_msg}",
        instruction=failure.instruction or _HINT,
    )
