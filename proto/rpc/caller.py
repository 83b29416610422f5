"""How a call arrived: by the local socket, and with a client certificate; and who the caller is."""

from __future__ import annotations

from typing import cast
from urllib.parse import unquote

import grpc

from shardmerge.proto.files.local_socket import SCHEME


def is_local(context: grpc.ServicerContext) -> bool:
    """Whether a call came by the socket of :func:`shardmerge.proto.rpc.server.listen_locally`."""
    return context.peer().startswith(SCHEME)


def is_private(context: grpc.ServicerContext) -> bool:
    """Whether an answer may contain secrets: the call came by a Unix socket, or by TLS with a client certificate."""
    # A list of values per name, unlike in the published stubs.
    return is_local(context) or bool(cast("dict[str, list[bytes]]", context.auth_context()).get("x509_pem_cert"))


def caller_name(context: grpc.ServicerContext) -> str:
    """Who calls: the common name of its certificate, else "local socket", else its host. For people: it proves
    nothing without TLS."""
    # A list of values per name, unlike in the published stubs.
    names = cast("dict[str, list[bytes]]", context.auth_context()).get("x509_common_name", [])
    if names:
        return names[0].decode(errors="backslashreplace")
    return "local socket" if is_local(context) else peer_host(context.peer())


def peer_host(peer: str) -> str:
    """The host of gRPC's name of a peer.

    >>> peer_host("ipv4:10.0.0.5:51234")
    '10.0.0.5'
    >>> peer_host("ipv6:%5B::1%5D:51234")
    '::1'
    """
    address = unquote(peer.partition(":")[2])
    return address.rpartition(":")[0].strip("[]") or peer
