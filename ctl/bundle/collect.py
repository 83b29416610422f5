"""Asks the master for everything that a bundle has. What fails is part of the bundle, too."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from shardmerge.ctl.bundle import cluster_files
from shardmerge.ctl.bundle.contents import Item, NotCollected
from shardmerge.ctl.bundle.daemon_files import files_of
from shardmerge.proto import diagnostics_pb2, errors
from shardmerge.proto import master_pb2 as pb
from shardmerge.proto.diagnostics.row_values import answer_without_values
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.rpc.coded_errors import same_error

if TYPE_CHECKING:
    import grpc

    from shardmerge.ctl.session import Session
    from shardmerge.proto.master_pb2_grpc import MasterStub

Request = TypeVar("Request")
Response = TypeVar("Response")

COMMAND = "support-bundle"
_CALL_SECONDS = 60.0
_STREAM_SECONDS = 120.0
_RECORDS_SECONDS = 120.0
"""For all questions before the one to the daemons."""
_LEAST_SECONDS = 1.0


class Collection:
    """One collection. ``errors`` and ``warnings``: what :meth:`items` has seen, a line each."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._reached = False
        self._deadline = time.monotonic() + _RECORDS_SECONDS
        self._no_etcd: ShardmergeError | None = None
        self.errors: list[str] = []
        self.warnings: list[str] = []

    def items(self) -> Iterator[Item]:
        """Files, and what could not be collected. Raises the error of the connection if no master answers at all."""
        yield from self._asked("the members", self._members)
        for kind in cluster_files.KINDS:
            yield from self._asked(f"the configurations of {kind}s", lambda kind=kind: self._configs(kind))
        yield from self._asked("the list of tasks", self._summary)
        yield from self._asked("the status of the tasks", self._status)
        yield from self._asked("the locks of sharding DDLs", self._locks)
        self._no_etcd = None  # daemons answer without etcd
        yield from self._asked("the diagnostics of the daemons", self._daemons)

    def _asked(self, what: str, ask: Callable[[], Iterator[Item]]) -> Iterator[Item]:
        """The items of a question to the records in etcd. After one that etcd did not answer no other one waits for
        it."""
        if self._no_etcd is not None:
            yield NotCollected.of(what, self._no_etcd)
            return
        try:
            yield from ask()
        except ShardmergeError as error:
            if same_error(error, errors.master.ETCD_UNAVAILABLE):
                self._no_etcd = error
            if not self._reached and error.spec.error_class in (errors.ctl.USAGE.error_class, "tls"):
                raise
            self._reached = True
            yield NotCollected.of(what, error)
        else:
            self._reached = True

    def _call(
        self, method: Callable[[MasterStub], grpc.UnaryUnaryMultiCallable[Request, Response]], request: Request
    ) -> Response:
        left = max(self._deadline - time.monotonic(), _LEAST_SECONDS)
        seconds = min(_CALL_SECONDS, self._session.settings.timeout, left)
        return self._session.call(COMMAND, method, request, timeout=seconds)

    def _members(self) -> Iterator[Item]:
        answer = self._call(
            lambda master: master.ListMember, pb.ListMemberRequest(leader=True, master=True, worker=True)
        )
        self.warnings.extend(cluster_files.warnings(answer))
        yield cluster_files.of_members(answer_without_values(answer))

    def _configs(self, kind: str) -> Iterator[Item]:
        number = cluster_files.KINDS[kind]
        try:
            answer = self._call(lambda master: master.GetConfig, pb.GetConfigRequest(kind=number))
        except ShardmergeError as error:
            if error.spec.retryable:  # it is not about one of the configurations
                raise
            yield from self._each_config(kind)
        else:
            yield from (cluster_files.of_config(kind, one) for one in answer.configs)

    def _each_config(self, kind: str) -> Iterator[Item]:
        """One call for each: a configuration that cannot be read hides no other one."""
        number = cluster_files.KINDS[kind]
        names = self._call(lambda master: master.GetConfig, pb.GetConfigRequest(kind=number, names_only=True))
        for each in names.configs:
            request = pb.GetConfigRequest(kind=number, names=[each.name])
            try:
                answer = self._call(lambda master: master.GetConfig, request)
            except ShardmergeError as error:
                yield NotCollected.of(f"the configuration of {kind} {each.name}", error)
            else:
                yield from (cluster_files.of_config(kind, one) for one in answer.configs)

    def _summary(self) -> Iterator[Item]:
        answer = self._call(lambda master: master.QueryStatus, pb.QueryStatusRequest())
        yield cluster_files.of_summary(answer_without_values(answer))

    def _status(self) -> Iterator[Item]:
        kind = pb.GetConfigRequest.KIND_SOURCE
        names = self._call(lambda master: master.GetConfig, pb.GetConfigRequest(kind=kind, names_only=True))
        if names.configs:
            request = pb.QueryStatusRequest(sources=[one.name for one in names.configs])
            answer = self._call(lambda master: master.QueryStatus, request)
            yield from cluster_files.cut_tables(answer)
            answer = answer_without_values(answer)
            self.errors.extend(cluster_files.current_errors(answer))
            yield from cluster_files.of_status(answer)

    def _locks(self) -> Iterator[Item]:
        answer = self._call(lambda master: master.ShowDDLLocks, pb.ShowDDLLocksRequest())
        yield cluster_files.of_locks(answer_without_values(answer))

    def _daemons(self) -> Iterator[Item]:
        request = diagnostics_pb2.DiagnosticsRequest()
        seconds = min(_STREAM_SECONDS, self._session.settings.timeout)
        for part in self._session.client.diagnostics(COMMAND, request, timeout=seconds):
            if part.daemon.not_ready:
                self.warnings.append(f"{part.kind} {part.name} is not ready: {', '.join(part.daemon.not_ready)}")
            yield from files_of(part)
