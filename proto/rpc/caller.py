"""How a call arrived: by the local socket, and with a client certificate."""

from __future__ import annotations

from typing import cast

import grpc

from shardmerge.proto.files.local_socket import SCHEME


def is_local(context: grpc.ServicerContext) -> bool:
    """Whether a call came by the socket of :func:`shardmerge.proto.rpc.server.listen_locally`."""
    return context.peer().startswith(SCHEME)


def is_private(context: grpc.ServicerContext) -> bool:
    """Whether an answer may contain secrets: the call came by a Unix socket, or by TLS with a client certificate."""
    # A list of values per name, unlike in the published stubs.
    return is_local(context) or bool(cast("dict[str, list[bytes]]", context.auth_context()).get("x509_pem_cert"))
