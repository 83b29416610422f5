"""A gRPC channel whose methods are not registered at the channel.

Generated stubs register each method (grpc/_channel.py, ``_get_registered_call_handle``), and an intercepted channel
does so at each call. gRPC does not check there whether another thread has closed the channel: the process ends with a
segmentation fault. A call of a method that is not registered raises ValueError.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import grpc


class UnregisteredChannel(grpc.Channel):
    """``inner``: gRPC's own channel, which :meth:`close` closes."""

    def __init__(self, inner: grpc.Channel) -> None:
        self._inner = inner

    def subscribe(self, callback: Callable[..., Any], try_to_connect: bool = False) -> None:
        self._inner.subscribe(callback, try_to_connect)

    def unsubscribe(self, callback: Callable[..., Any]) -> None:
        self._inner.unsubscribe(callback)

    def unary_unary(self, *args: Any, **options: Any) -> Any:
        return _unregistered(self._inner.unary_unary, args, options)

    def unary_stream(self, *args: Any, **options: Any) -> Any:
        return _unregistered(self._inner.unary_stream, args, options)

    def stream_unary(self, *args: Any, **options: Any) -> Any:
        return _unregistered(self._inner.stream_unary, args, options)

    def stream_stream(self, *args: Any, **options: Any) -> Any:
        return _unregistered(self._inner.stream_stream, args, options)

    def close(self) -> None:
        self._inner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _unregistered(make: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """``args`` and ``options`` are those of gRPC's channel: method, serializer, deserializer, whether to register."""
    return make(*args[:3], **{**options, "_registered_method": False})
