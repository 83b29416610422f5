"""TLS to sources and targets: cached contexts, and a check of the peer before the password is sent."""

from __future__ import annotations

import os
import socket
import ssl
import stat
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from shardmerge.proto import errors
from shardmerge.proto.log import get_logger
from shardmerge.proto.pem import pem_of
from shardmerge.worker.core.mysql.endpoint import Endpoint, Tls

log = get_logger()

_MOST_BYTES = 4 << 20
"""Twenty times the certificates of a system."""


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
        _load(lambda: context.load_verify_locations(cadata=pem_of(tls.ca_content)), {"ssl-ca": ""})
    elif tls.ca:
        _load(lambda: context.load_verify_locations(cafile=tls.ca), {"ssl-ca": tls.ca})
    elif tls.allowed_cn:
        context.load_default_certs()
    if tls.cert or tls.cert_content:
        _load(lambda: _load_pair(context, tls), {"ssl-cert": tls.cert, "ssl-key": tls.key})
    return context


def _load_pair(context: ssl.SSLContext, tls: Tls) -> None:
    with _file(tls.cert, tls.cert_content) as cert, _file(tls.key, tls.key_content) as key:
        context.load_cert_chain(cert, key, password="")  # for an encrypted key it would ask at the terminal


def _load(load: Callable[[], None], paths: Mapping[str, str]) -> None:
    """Raises the coded error if the files cannot be used. ``paths``: by key, "" for content.

    Whoever may name a path must not learn from the error which files this machine has: the error is the same for each
    reason, and for a pair of files the same for both. The reason is logged below the level of the lines that a support
    bundle has (proto/diagnostics/recent_lines.py).
    """
    files = ", ".join(f"{key} {path}" for key, path in paths.items() if path)
    try:
        for path in filter(None, paths.values()):
            _check_file(path)
        load()
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        # The text of a ValueError may quote the content.
        reason = getattr(error, "strerror", None) or (str(error) if files else type(error).__name__)
    else:
        return
    # Raised here, not above: an error's context is logged with it.
    if not files:
        raise errors.worker.TLS_CONTENT(key=" or ".join(paths), reason=reason)
    log.info("TLS files cannot be used", files=files, reason=reason)
    raise errors.worker.TLS_FILE(files=files)


def _check_file(path: str) -> None:
    """Raises OSError, and ValueError for what the library would read for ever."""
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode):
        raise ValueError("it is no regular file")
    if found.st_size > _MOST_BYTES:
        raise ValueError(f"its {found.st_size} bytes are more than the {_MOST_BYTES} of a PEM file")


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


def _changed_at(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns if path else 0
    except (OSError, ValueError):
        return 0  # loading it reports that


def _common_names(peer: ssl.SSLSocket) -> frozenset[str]:
    certificate: Any = peer.getpeercert() or {}
    return frozenset(value for part in certificate.get("subject", ()) for name, value in part if name == "commonName")
