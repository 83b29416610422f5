"""TLS to sources and targets: cached contexts, and a check of the peer before the password is sent."""

from __future__ import annotations

import os
import socket
import ssl
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from shardmerge.proto import errors
from shardmerge.proto.pem import pem_of
from shardmerge.worker.core.mysql.endpoint import Endpoint, Tls


class _Context(ssl.SSLContext):
    """Raises a coded error when it refuses a peer: the client library would report a lost connection, which is retried
    for ever. ``allowed``: common names, one of which the peer's certificate must have; empty: any."""

    allowed: frozenset[str] = frozenset()

    def wrap_socket(self, sock: socket.socket, *args: Any, **options: Any) -> ssl.SSLSocket:
        host, port = sock.getpeername()[:2]
        try:
            made = super().wrap_socket(sock, *args, **options)
        except ssl.SSLCertVerificationError as error:
            raise errors.worker.TLS_PEER_REFUSED(host=host, port=port, reason=error.verify_message) from error
        found = _common_names(made)
        if self.allowed and not self.allowed & found:
            made.close()
            raise errors.worker.TLS_PEER_REFUSED(
                host=host,
                port=port,
                reason=f"the common name of its certificate is {', '.join(sorted(found)) or 'missing'}, not one of "
                f"{', '.join(sorted(self.allowed))} (cert-allowed-cn)",
            )
        return made


def context_of(endpoint: Endpoint) -> ssl.SSLContext:
    """The TLS context for a connection to ``endpoint``.

    Without TLS keys: encrypted if the server offers it, without verifying the server. With ``ca`` that authority must
    have signed the server's certificate; its host name is not compared, as with the MySQL client's VERIFY_CA, because
    certificates that servers make for themselves have none: ``allowed_cn`` distinguishes servers.

    Raises TLS_FILE for a file that is missing or is none of its kind, TLS_CONTENT for such a text.
    """
    tls = endpoint.tls
    # A changed file has a new certificate.
    return _made(tls, tuple(_changed_at(path) for path in (tls.ca, tls.cert, tls.key)))


@lru_cache(maxsize=64)  # making one reads the system's certificates: 60 ms of CPU time
def _made(tls: Tls, _changed: tuple[int, ...]) -> ssl.SSLContext:
    context = _Context(ssl.PROTOCOL_TLS_CLIENT)
    context.allowed = frozenset(tls.allowed_cn)
    context.check_hostname = False
    # Certificates that MySQL makes for itself lack what the strict reading of RFC 5280 asks for.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    is_known = bool(tls.ca or tls.ca_content or tls.allowed_cn)
    context.verify_mode = ssl.CERT_REQUIRED if is_known else ssl.CERT_NONE
    if tls.ca_content:
        with _coded("ssl-ca", ""):
            context.load_verify_locations(cadata=pem_of(tls.ca_content))
    elif tls.ca:
        with _coded("ssl-ca", tls.ca):
            context.load_verify_locations(cafile=tls.ca)
    elif tls.allowed_cn:
        context.load_default_certs()
    if tls.cert or tls.cert_content:
        with (
            _coded("ssl-cert or ssl-key", tls.cert or tls.key),
            _file(tls.cert, tls.cert_content) as cert,
            _file(tls.key, tls.key_content) as key,
        ):
            context.load_cert_chain(cert, key)
    return context


@contextmanager
def _file(path: str, content: str) -> Generator[str]:
    """The file, or a temporary file with the content that only this user can read, deleted at the end of the block: the
    library reads a client certificate from a file only."""
    if not content:
        yield path
        return
    with tempfile.NamedTemporaryFile("w", encoding="ascii") as made:  # mode 0600
        made.write(pem_of(content))
        made.flush()
        yield made.name


@contextmanager
def _coded(key: str, path: str) -> Generator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        reason = getattr(error, "strerror", None) or type(error).__name__
        if path:
            raise errors.worker.TLS_FILE(path=path, reason=reason) from error
        raise errors.worker.TLS_CONTENT(key=key, reason=reason) from error


def _changed_at(path: str) -> int:
    if not path:
        return 0
    try:
        return os.stat(path).st_mtime_ns
    except OSError as error:
        raise errors.worker.TLS_FILE(path=path, reason=error.strerror or type(error).__name__) from error


def _common_names(peer: ssl.SSLSocket) -> frozenset[str]:
    certificate: Any = peer.getpeercert() or {}
    return frozenset(value for part in certificate.get("subject", ()) for name, value in part if name == "commonName")
