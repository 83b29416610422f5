"""A source without tasks is checked until the checks succeed."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from shardmerge.proto import config_pb2, errors, worker_pb2
from shardmerge.worker.daemon.source.source_check import SourceCheck
from tests.support.fake_clock import FakeClock
from tests.support.wait import until

_FAIL = worker_pb2.CheckResult(
    name="connection", state=worker_pb2.CHECK_STATE_FAIL, code=12003, error_msg="refused", instruction="Look."
)
_WARN = worker_pb2.CheckResult(name="version", state=worker_pb2.CHECK_STATE_WARN)


class _Answers:
    """Each answer is returned once, the last one again and again. ``asked``: the number of checks."""

    def __init__(self, *answers: Sequence[worker_pb2.CheckResult]) -> None:
        self._answers = list(answers)
        self.asked = 0
        self.may_answer = threading.Event()

    def __call__(self, source: config_pb2.SourceConfig) -> Sequence[worker_pb2.CheckResult]:
        self.may_answer.wait(60)
        self.asked += 1
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


def test_the_error_is_shown_until_a_check_succeeds() -> None:
    """The pauses between the checks grow up to a minute."""
    answers = _Answers(*[[_WARN, _FAIL]] * 6, [_WARN])
    clock, seen = FakeClock(), list[bool]()
    check = SourceCheck(config_pb2.SourceConfig(source_id="s1"), answers, clock)
    assert check.error is None, "nothing is known yet"
    clock.after(1, lambda: seen.append(check.error is not None))
    answers.may_answer.set()
    until(lambda: not check.runs, "a check has succeeded")
    assert (answers.asked, check.error) == (7, None)
    assert seen == [True], "the first check has failed"
    assert clock.waits == [0, 5, 10, 20, 40, 60, 60]


def test_what_is_reported() -> None:
    answers = _Answers([_FAIL])
    answers.may_answer.set()
    check = SourceCheck(config_pb2.SourceConfig(source_id="s1"), answers)
    error = until(lambda: check.error, "the check has failed")
    assert error.spec is errors.master.SOURCE_CHECK_FAILED
    assert "s1" in error.message and "[12003] connection: refused" in error.message
    assert error.workaround == "Look."
    check.stop()
    assert check.error is None


def test_an_answer_after_the_stop_is_not_reported() -> None:
    answers = _Answers([_FAIL])
    check = SourceCheck(config_pb2.SourceConfig(source_id="s1"), answers)
    check.stop()
    answers.may_answer.set()
    until(lambda: answers.asked == 1 and not check.runs, "the check has ended")
    assert check.error is None
