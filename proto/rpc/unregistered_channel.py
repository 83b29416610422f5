"""A gRPC channel whose methods are not registered at the channel.

Generated stubs register each method (grpc/_channel.py, ``_get_registered_call_handle``), and an intercepted channel
does so at each call. gRPC does not check there whether another thread has closed the channel: the process ends with a
segmentation fault. A call of a method that is not registered raises ValueError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc


class UnregisteredChannel(grpc.Channel):
    """``inner``: gRPC's own channel, which :meth:`close` closes."""

    def __init__(self, inner: grpc.Channel) -> None:
        self._inner = inner

    def subscribe(self, callback: Callable[..., Any], try_to_connect: bool = False) -> None:
        self._inner.subscribe(callback, try_to_connect)

    def unsubscribe(self, callback: Callable[..., Any]) -> None:
        self._inner.unsubscribe(callback)

    def unary_unary(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        _registered_method: bool | None = False,
    ) -> Any:
        return self._inner.unary_unary(method, request_serializer, response_deserializer)

    def unary_stream(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        _registered_method: bool | None = False,
    ) -> Any:
        return self._inner.unary_stream(method, request_serializer, response_deserializer)

    def stream_unary(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        _registered_method: bool | None = False,
    ) -> Any:
        return self._inner.stream_unary(method, request_serializer, response_deserializer)

    def stream_stream(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        _registered_method: bool | None = False,
    ) -> Any:
        return self._inner.stream_stream(method, request_serializer, response_deserializer)

    def close(self) -> None:
        self._inner.close()

    def __enter__(self) -> UnregisteredChannel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
