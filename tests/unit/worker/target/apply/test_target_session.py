"""Tests which attempts at the target are repeated, without a server."""

from __future__ import annotations

import pytest

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import Endpoint
from shardmerge.worker.target.apply.target_session import ApplySettings, TargetSession


def _attempts(retry_seconds: float, *failures: ShardmergeError) -> tuple[list[int], list[int], ShardmergeError | None]:
    """The attempts, the numbers of the repetitions, and the error that was raised."""
    begun: list[int] = []
    repeated: list[int] = []
    left = list(failures)

    def attempt() -> int:
        begun.append(len(begun) + 1)
        if left:
            raise left.pop(0)
        return len(begun)

    settings = ApplySettings("merge", "s1", "meta", Endpoint("127.0.0.1", 1, "u"), False, retry_seconds=retry_seconds)
    session = TargetSession(settings, lambda number, error: repeated.append(number))
    try:
        assert session.retrying(attempt) == len(begun)
    except ShardmergeError as error:
        return begun, repeated, error
    return begun, repeated, None


def _lost() -> ShardmergeError:
    return errors.replicate.TARGET_LOST(host="h", port=1, reason="gone", errno=2013)


def test_retryable_errors_are_repeated() -> None:
    assert _attempts(60.0, _lost(), _lost()) == ([1, 2, 3], [2, 3], None)


def test_the_last_error_is_raised_when_the_time_is_over() -> None:
    last = _lost()
    assert _attempts(0.0, last) == ([1], [], last)


@pytest.mark.parametrize(
    "spec", [errors.replicate.TARGET_TRANSACTION_TOO_LARGE, errors.worker.INTERNAL], ids=lambda spec: spec.name
)
def test_other_errors_are_raised_at_once(spec: errors.ErrorSpec) -> None:
    error = ShardmergeError(spec, {"reason": "a message"})
    assert _attempts(60.0, error) == ([1], [], error)
