"""Carries out the rounds of a thread in the background: one that fails is logged, and the next one follows."""

from __future__ import annotations

from collections.abc import Callable, Collection

from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.log_rate_limit import RateLimit

_LOG_SECONDS = 600.0


class Rounds:
    """Used by one thread. ``failed``: the text of the log line, once in ten minutes. ``expected``: errors that are not
    logged."""

    def __init__(self, failed: str, expected: Collection[ErrorSpec] = ()) -> None:
        self._failed = failed
        self._expected = expected
        self._log_limit = RateLimit(_LOG_SECONDS)

    def is_done(self, step: Callable[[], None]) -> bool:
        """Carry out ``step``; False: it has failed."""
        try:
            step()
        except Exception as error:  # noqa: BLE001 - what fails here must not end the thread without a word
            self._log(error)
            return False
        return True

    def _log(self, error: Exception) -> None:
        is_coded = isinstance(error, ShardmergeError)
        if is_coded and error.spec in self._expected:
            return
        left_out = self._log_limit.left_out("failed")
        if left_out is not None:
            text = str(error) if is_coded else f"{type(error).__name__}: {error}"
            get_logger().warning(self._failed, error=text, left_out=left_out, exc_info=not is_coded)
