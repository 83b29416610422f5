"""The connection to the masters: finds one that answers and follows it to the leader."""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import grpc

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.files.local_socket import SCHEME
from shardmerge.proto.master_pb2_grpc import MasterStub
from shardmerge.proto.rpc import caller_proof, client
from shardmerge.proto.rpc.coded_errors import detail_of, same_error
from shardmerge.proto.tls.model import Tls
from shardmerge.proto.tls.process import of_process, use

if TYPE_CHECKING:
    from shardmerge.ctl.settings import ClientSettings
    from shardmerge.proto.compare_pb2 import CompareFrame, CompareRequest
    from shardmerge.proto.diagnostics_pb2 import DiagnosticsPart, DiagnosticsRequest

Request = TypeVar("Request")
Response = TypeVar("Response")

_CONNECT_SECONDS = 3.0
_ELECTION_SECONDS = 10.0  # how long a command waits for a leader; an election takes about a lease, 3–5 s
_HOPS = 5


_PASSING = (errors.master.NO_LEADER, errors.master.NOT_LEADER, errors.master.CALL_TOO_MANY)
"""Errors that end by themselves; the command has changed nothing."""


class _NoConnectionError(Exception):
    """An address that cannot be used; the text is the reason. ``coded``: its coded error, if it has one."""

    def __init__(self, reason: str, coded: ShardmergeError | None = None) -> None:
        super().__init__(reason)
        self.coded = coded


class MasterClient:
    """Calls the leader among the addresses of the settings. Not for use by several threads; close it, or use ``with``.

    A command is sent again only if it cannot have been done: the connection could not be made, or the master answered
    that it is not the leader.
    """

    def __init__(self, settings: ClientSettings, addresses: Sequence[str] = (), timeout: float | None = None) -> None:
        """``addresses`` and ``timeout``: others than those of the settings. Raises the errors of the files for TLS
        (``errors.tls``), and SECRET_KEY_UNUSABLE for a key file that the settings name."""
        self._addresses = tuple(addresses) or settings.addresses
        self._timeout = settings.timeout if timeout is None else timeout
        use(None if settings.tls is None else Tls(settings.tls))
        if settings.tls is None and not all(address.startswith(SCHEME) for address in self._addresses):
            caller_proof.use_file(settings.secret_key_path, os.environ)
        self._channel: grpc.Channel | None = None
        self._address = ""

    def __enter__(self) -> MasterClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        """The master that answered last; "" before the first answer."""
        return self._address

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def call(
        self,
        command: str,
        method: Callable[[MasterStub], grpc.UnaryUnaryMultiCallable[Request, Response]],
        request: Request,
        *,
        timeout: float | None = None,
    ) -> Response:
        """The leader's answer within ``timeout`` seconds (default: the client's).

        Raises errors.ctl.MASTER_UNREACHABLE, CONNECTION_LOST, DEADLINE_EXCEEDED, MASTER_DIFFERS, errors.tls.*, or
        the master's own coded error.
        """
        began = time.monotonic()
        deadline = began + (self._timeout if timeout is None else timeout)
        hops = 0
        while True:
            channel = self._connected(deadline)
            try:
                return self._once(channel, command, method, request, deadline - time.monotonic())
            except ShardmergeError as error:
                self.close()
                if same_error(error, errors.master.NOT_LEADER) and hops < _HOPS:
                    hops += 1
                    if self._moved_to(error.values.get("address", ""), deadline):
                        continue
                waits = any(same_error(error, spec) for spec in _PASSING)
                if not waits or time.monotonic() > min(began + _ELECTION_SECONDS, deadline):
                    raise
                time.sleep(0.3 + random.random() * 0.4)  # noqa: S311 — only spreads the clients

    def compare(self, request: CompareRequest) -> Iterator[CompareFrame]:
        """The stream of a comparison, without a time limit; leaving the iterator ends the comparison.

        Any master answers. Raises what :meth:`call` raises, except DEADLINE_EXCEEDED.
        """
        from shardmerge.proto.compare_pb2_grpc import CompareStub

        channel = self._connected(time.monotonic() + self._timeout)
        yield from self._streamed("compare", CompareStub(channel).Compare, request)

    def diagnostics(self, command: str, request: DiagnosticsRequest, *, timeout: float) -> Iterator[DiagnosticsPart]:
        """The parts that a master collects, as they arrive. Any master answers. Raises what :meth:`call` raises."""
        deadline = time.monotonic() + timeout
        channel = self._connected(deadline)
        seconds = max(deadline - time.monotonic(), 0.001)
        yield from self._streamed(command, MasterStub(channel).CollectDiagnostics, request, seconds)

    def _streamed(
        self,
        command: str,
        method: grpc.UnaryStreamMultiCallable[Request, Response],
        request: Request,
        seconds: float | None = None,
    ) -> Iterator[Response]:
        try:
            stream = method(request, timeout=seconds)  # a channel that proves its calls already asks the master here
            try:
                yield from stream
            finally:
                stream.cancel()
        except grpc.RpcError as error:
            raise self._coded(error, command) from error

    def _once(
        self,
        channel: grpc.Channel,
        command: str,
        method: Callable[[MasterStub], grpc.UnaryUnaryMultiCallable[Request, Response]],
        request: Request,
        seconds: float,
    ) -> Response:
        try:
            return method(MasterStub(channel))(request, timeout=max(seconds, 0.001))
        except grpc.RpcError as error:
            raise self._coded(error, command) from error

    def _coded(self, error: grpc.RpcError, command: str) -> ShardmergeError:
        if not isinstance(error, grpc.Call) or detail_of(error) is not None:
            return client.coded_from_rpc(error, f"master ({self._address})")
        reason = error.details() or error.code().name
        match error.code():
            case grpc.StatusCode.DEADLINE_EXCEEDED:
                return errors.ctl.DEADLINE_EXCEEDED(
                    command=command, address=self._address, timeout=f"{self._timeout:g} s"
                )
            case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED:
                return errors.ctl.CONNECTION_LOST(command=command, address=self._address, reason=reason)
            case grpc.StatusCode.UNIMPLEMENTED:
                return errors.ctl.MASTER_DIFFERS(command=command, address=self._address)
            case _:
                return client.coded_from_rpc(error, f"master ({self._address})")

    def _connected(self, deadline: float) -> grpc.Channel:
        """The channel in use, or one to the first address that takes a connection."""
        if self._channel is not None:
            return self._channel
        attempts: list[str] = []
        coded: ShardmergeError | None = None
        for address in self._addresses:
            try:
                return self._open(address, deadline)
            except _NoConnectionError as error:
                attempts.append(f"{address}: {error}")
                coded = coded or error.coded
        if coded is not None:
            raise coded
        raise errors.ctl.MASTER_UNREACHABLE(attempts="; ".join(attempts))

    def _moved_to(self, leader: str, deadline: float) -> bool:
        """Connect to the leader that a master named; False if it cannot be reached: then ask the others again."""
        try:
            self._open(leader, deadline)
        except _NoConnectionError:
            return False
        return True

    def _open(self, address: str, deadline: float) -> grpc.Channel:
        """Make ``address`` the one in use.

        A plain TCP connection goes first: it distinguishes a refusal, an unknown host and silence at once, where a gRPC
        channel only reports that it is not ready yet.
        """
        self.close()
        seconds = max(0.001, min(_CONNECT_SECONDS, deadline - time.monotonic()))
        host, _, port = address.rpartition(":")
        local = address.startswith(SCHEME)
        try:
            if local:
                _probe(address.removeprefix(SCHEME), seconds)
            else:
                socket.create_connection((host.strip("[]"), int(port)), seconds).close()
        except TimeoutError as error:
            raise _NoConnectionError(f"no answer within {seconds:.0f} s") from error
        except socket.gaierror as error:
            raise _NoConnectionError(f"the host name {host} is not known") from error
        except (OSError, ValueError) as error:
            raise _NoConnectionError((getattr(error, "strerror", None) or str(error)).lower()) from error
        if of_process() is not None and not local:
            _check_tls(address)
        channel = client.channel(address)
        try:
            grpc.channel_ready_future(channel).result(timeout=seconds)
        except grpc.FutureTimeoutError as error:
            channel.close()
            if not local:
                _check_tls(address)
            reason = f"it accepts connections, but no dm-master has answered within {seconds:.0f} s"
            raise _NoConnectionError(reason) from error
        except BaseException:
            channel.close()
            raise
        self._channel, self._address = channel, address
        return channel


def _probe(path: str, seconds: float) -> None:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(seconds)
        probe.connect(path)


def _check_tls(address: str) -> None:
    """Raises _NoConnectionError with the TLS error: gRPC reports only that it is not ready."""
    from shardmerge.proto.tls.diagnose import diagnosed  # only with TLS, or when there is no connection

    problem = diagnosed(address)
    if problem is not None:
        raise _NoConnectionError(str(problem), problem)
