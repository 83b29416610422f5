"""support-bundle: what masters, workers and etcd know of themselves, collected at the same time.

The answers have no secrets, so that every accepted caller gets them, like those of query-status.
"""

from __future__ import annotations

import math
import queue
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import grpc

from shardmerge.master.commands.cluster.etcd_facts import etcd_facts
from shardmerge.master.state import State
from shardmerge.master.store import Store
from shardmerge.master.workers.client import Workers
from shardmerge.proto import diagnostics_pb2 as pb
from shardmerge.proto import errors
from shardmerge.proto.diagnostics.self_report import SelfReport
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd import Etcd
from shardmerge.proto.log import get_logger
from shardmerge.proto.master_pb2_grpc import MasterStub
from shardmerge.proto.rpc.client import channel, coded_from_rpc
from shardmerge.proto.rpc.coded_errors import error_to_proto
from shardmerge.proto.state_pb2 import MasterRecord

_DAEMON_SECONDS = 10.0
_TOTAL_SECONDS = 60.0
_FAN_OUT = 16
MASTER, WORKER, ETCD = "master", "worker", "etcd"

_Answer = pb.DaemonDiagnostics | pb.EtcdDiagnostics


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """What one daemon, or etcd, is asked. ``ask``: with the seconds that it may take; raises ShardmergeError."""

    kind: str
    name: str
    address: str
    ask: Callable[[float], _Answer]

    @property
    def peer(self) -> str:
        return f"{self.kind} {self.name} ({self.address})" if self.address else f"{self.kind} {self.name}"

    def _seconds(self, deadline: float) -> float:
        """Raises PEER_TIMEOUT when none is left."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise errors.master.PEER_TIMEOUT(peer=self.peer)
        return min(_DAEMON_SECONDS, left)

    def answer(self, deadline: float) -> pb.DiagnosticsPart:
        """The part for the bundle: the answer, or the error. ``deadline``: of ``time.monotonic()``."""
        part = pb.DiagnosticsPart(kind=self.kind, name=self.name, address=self.address)
        try:
            answer = self.ask(self._seconds(deadline))
        except ShardmergeError as error:
            part.error.CopyFrom(error_to_proto(error))
        except Exception as error:  # noqa: BLE001 - the log has it; the other parts are collected
            get_logger().exception("diagnostics not collected", kind=self.kind, name=self.name)
            coded = errors.master.INTERNAL(program="dm-master", kind=type(error).__name__, method="CollectDiagnostics")
            part.error.CopyFrom(error_to_proto(coded))
        else:
            if isinstance(answer, pb.EtcdDiagnostics):
                part.etcd.CopyFrom(answer)
            else:
                part.daemon.CopyFrom(answer)
        return part


@dataclass(frozen=True, slots=True)
class DiagnosticsCommand:
    """``name``: of this master; ``own``: its report about itself."""

    name: str
    own: SelfReport
    store: Store
    workers: Workers
    etcd: Etcd

    def collect(self, peer: str) -> Iterator[pb.DiagnosticsPart]:
        """A part for each daemon and for etcd, as the answers arrive; what does not answer has an error."""
        get_logger().info("diagnostics are collected", peer=peer)
        questions = [
            Question(MASTER, self.name, "", lambda _: self.own.report()),
            Question(ETCD, "etcd", ",".join(self.etcd.endpoints), lambda _: etcd_facts(self.etcd)),
        ]
        state = self._state()
        if state is not None:
            questions += self._questions(state)
        yield from answers_of(questions, _TOTAL_SECONDS)

    def _state(self) -> State | None:
        """The records; the last ones that this master has read if etcd does not answer."""
        try:
            return self.store.read()
        except ShardmergeError:
            last = self.store.last_read
            return None if last is None else last.state

    def _questions(self, state: State) -> Iterator[Question]:
        for name, entry in sorted(state.masters.items()):
            if name != self.name:
                yield _to_master(entry.value)
        for name in sorted({*state.workers, *state.bindings().values()}):
            yield self._to_worker(name, state)

    def _to_worker(self, name: str, state: State) -> Question:
        entry = state.workers.get(name)

        def ask(seconds: float) -> pb.DaemonDiagnostics:
            if entry is None:  # it holds a source, and its lease has ended
                raise errors.master.WORKER_UNKNOWN(worker=name)
            return self.workers.diagnostics(entry.value, seconds)

        return Question(WORKER, name, "" if entry is None else entry.value.address, ask)


def _to_master(record: MasterRecord) -> Question:
    def ask(seconds: float) -> pb.DaemonDiagnostics:
        with channel(record.address) as connection:
            try:
                return MasterStub(connection).Diagnostics(pb.DiagnosticsRequest(), timeout=seconds)
            except grpc.RpcError as error:
                raise coded_from_rpc(error, f"master {record.name} ({record.address})", record.address) from error

    return Question(MASTER, record.name, record.address, ask)


def answers_of(questions: Sequence[Question], seconds: float) -> Iterator[pb.DiagnosticsPart]:
    """The parts in the order in which they arrive; after ``seconds`` an error for each that is missing."""
    deadline = time.monotonic() + seconds
    answers: queue.SimpleQueue[tuple[Question, pb.DiagnosticsPart]] = queue.SimpleQueue()
    pool = ThreadPoolExecutor(min(len(questions), _FAN_OUT), thread_name_prefix="diagnostics")

    def answer(question: Question) -> None:
        answers.put((question, question.answer(deadline)))

    missing = dict.fromkeys(questions)
    try:
        for question in questions:
            pool.submit(answer, question)
        while missing:
            question, part = answers.get(timeout=max(0.0, deadline - time.monotonic()))
            del missing[question]
            yield part
    except queue.Empty:
        for question in missing:
            yield question.answer(-math.inf)
    finally:
        # When the caller has left, questions that have not begun are not asked.
        pool.shutdown(wait=False, cancel_futures=True)
