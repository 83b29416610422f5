"""Answers arrive in any order and within a time; what fails or is late has a coded error."""

from __future__ import annotations

import threading
import time

from shardmerge.master.commands.cluster.diagnostics import Question, answers_of
from shardmerge.proto import diagnostics_pb2 as pb
from shardmerge.proto import errors


def _answers(seconds: float) -> pb.DaemonDiagnostics:
    return pb.DaemonDiagnostics(name="x")


def _fails(seconds: float) -> pb.DaemonDiagnostics:
    raise errors.master.PEER_UNREACHABLE(peer="w2", reason="gone")


def _has_a_bug(seconds: float) -> pb.DaemonDiagnostics:
    raise ValueError("Geheim-4711")


def _facts(seconds: float) -> pb.EtcdDiagnostics:
    return pb.EtcdDiagnostics(revision=7)


def test_every_question_has_one_part() -> None:
    kinds = [("w1", _answers), ("w2", _fails), ("w3", _has_a_bug)]
    questions = [Question("worker", name, "h:1", ask) for name, ask in kinds]
    parts = {part.name: part for part in answers_of([*questions, Question("etcd", "etcd", "", _facts)], 60)}
    assert parts["w1"].daemon.name == "x" and not parts["w1"].HasField("error")
    assert parts["w2"].error.code == errors.master.PEER_UNREACHABLE.code
    assert parts["w3"].error.code == errors.master.INTERNAL.code and "Geheim" not in str(parts["w3"])
    assert parts["etcd"].etcd.revision == 7
    assert len(parts) == 4


def test_a_late_answer_delays_no_other_one() -> None:
    release = threading.Event()

    def waits(seconds: float) -> pb.DaemonDiagnostics:
        release.wait(60)
        return pb.DaemonDiagnostics()

    questions = [Question("worker", name, "h:1", waits if name == "late" else _answers) for name in ("late", "w2")]
    began = time.monotonic()
    try:
        parts = list(answers_of(questions, 0.5))
    finally:
        release.set()
    assert time.monotonic() - began < 30
    assert [part.name for part in parts] == ["w2", "late"]
    assert parts[1].error.code == errors.master.PEER_TIMEOUT.code and "worker late (h:1)" in parts[1].error.message


def test_more_questions_than_threads() -> None:
    questions = [Question("worker", str(number), "", _answers) for number in range(100)]
    assert {part.name for part in answers_of(questions, 60)} == {str(number) for number in range(100)}
