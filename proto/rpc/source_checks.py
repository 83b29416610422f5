"""The error of a source whose checks have failed, the same at the master and at the worker."""

from __future__ import annotations

from collections.abc import Iterable

from shardmerge.proto import errors, worker_pb2
from shardmerge.proto.errors import ShardmergeError

_CONNECTION = "connection"
"""The item of the login: without it no other one runs."""

_HINT = "Correct it and repeat the command."
_CREATE_AGAIN = "`dmctl operate-source create <source-file>`"
_NO_LOGIN = (
    "Nothing was stored. Correct what the reason names: host, port, user and password in the source's file, its "
    "`security` (`ssl-ca: FILE`, or `allow-public-key-retrieval: true` for caching_sha2_password; any program that "
    "answers at that address can then read the password), the account at the source, or the network between worker "
    f"and source; then repeat {_CREATE_AGAIN}."
)
"""The ways out of the errors of a login are those of a stored source, whose tasks are paused."""


def source_failure(
    results: Iterable[worker_pb2.CheckResult], source: str, *, is_new: bool = False
) -> ShardmergeError | None:
    """SOURCE_CHECK_FAILED with the first check that failed; None when none did. ``is_new``: the source is not
    stored."""
    failure = next((one for one in results if one.state == worker_pb2.CHECK_STATE_FAIL), None)
    if failure is None:
        return None
    instruction = failure.instruction or _HINT
    if is_new:
        # A statement in the instruction stays one line that can be run as it is.
        repeat = f"{instruction}\nNothing was stored: then repeat {_CREATE_AGAIN}."
        instruction = _NO_LOGIN if failure.name == _CONNECTION else repeat
    return errors.master.SOURCE_CHECK_FAILED(
        source=source, reason=f"[{failure.code}] {failure.name}: {failure.error_msg}", instruction=instruction
    )
