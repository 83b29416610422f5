"""A channel that proves each of its calls (:mod:`shardmerge.proto.rpc.caller_proof`).

A call serializes its request, proves these bytes and sends them. If the server has started anew it refuses the proof
before it does anything; the call is then sent once more. Calls that stream their requests are sent as they are: they
belong to the tasks of a run, which have the secret of the run instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import grpc

from shardmerge.proto import errors, identity_pb2, identity_pb2_grpc
from shardmerge.proto.rpc.caller_proof import METADATA, CallerSession, CallKeys
from shardmerge.proto.rpc.coded_errors import detail_of
from shardmerge.proto.rpc.unregistered_channel import UnregisteredChannel

_ANSWER_SECONDS = 10.0
_REFUSALS = (errors.tls.CALLER_PROOF_STALE.code, errors.tls.CALLER_UNKNOWN.code)


class ProvingChannel(UnregisteredChannel):
    """``inner``: gRPC's channel in plain text. ``peer``: names the server in errors."""

    def __init__(self, inner: grpc.Channel, keys: CallKeys, peer: str) -> None:
        super().__init__(inner)
        self._ask = identity_pb2_grpc.IdentityStub(UnregisteredChannel(inner)).Prove
        self.session = CallerSession(keys, peer, self._prove)

    def _prove(self, request: identity_pb2.ProveRequest) -> identity_pb2.ProveResponse:
        try:
            return self._ask(request, timeout=_ANSWER_SECONDS)
        except grpc.RpcError as error:
            if isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return identity_pb2.ProveResponse()
            raise

    def unary_unary(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        _registered_method: bool | None = False,
    ) -> Any:
        call = super().unary_unary(method, None, response_deserializer)
        return _Unary(call, method, request_serializer, self.session)

    def unary_stream(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        _registered_method: bool | None = False,
    ) -> Any:
        call = super().unary_stream(method, None, response_deserializer)
        return _Stream(call, method, request_serializer, self.session)


class _Proved:
    """What both kinds of calls have in common."""

    def __init__(
        self, call: Any, method: str, serialize: Callable[[Any], bytes] | None, session: CallerSession
    ) -> None:
        self._call, self._method, self._session = call, method, session
        self._serialize = serialize or bytes

    def _with_proof(self, raw: bytes, metadata: Any) -> list[tuple[str, str | bytes]]:
        proof = self._session.proof(self._method, raw)
        return [*(metadata or ()), *([] if proof is None else [(METADATA, proof)])]


class _Unary(_Proved):
    def __call__(
        self, request: Any, timeout: float | None = None, metadata: Any = None, *further: Any, **options: Any
    ) -> Any:
        return self.with_call(request, timeout, metadata, *further, **options)[0]

    def with_call(
        self, request: Any, timeout: float | None = None, metadata: Any = None, *further: Any, **options: Any
    ) -> Any:
        raw = self._serialize(request)
        try:
            return self._call.with_call(raw, timeout, self._with_proof(raw, metadata), *further, **options)
        except grpc.RpcError as error:
            if not _is_refused(error):
                raise
        self._session.forget()
        return self._call.with_call(raw, timeout, self._with_proof(raw, metadata), *further, **options)

    def future(
        self, request: Any, timeout: float | None = None, metadata: Any = None, *further: Any, **options: Any
    ) -> Any:
        """It is not sent again: the server is asked for its challenge first."""
        raw = self._serialize(request)
        self._session.forget()
        return self._call.future(raw, timeout, self._with_proof(raw, metadata), *further, **options)


class _Stream(_Proved):
    def __call__(
        self, request: Any, timeout: float | None = None, metadata: Any = None, *further: Any, **options: Any
    ) -> Iterator[Any]:
        raw = self._serialize(request)
        self._session.forget()  # an answer that streams is not asked for again
        return self._call(raw, timeout, self._with_proof(raw, metadata), *further, **options)


def _is_refused(error: grpc.RpcError) -> bool:
    """Whether the server has refused the proof, and so has done nothing."""
    detail = detail_of(error)
    return detail is not None and detail.code in _REFUSALS
