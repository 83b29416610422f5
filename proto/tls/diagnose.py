"""Finds out why a connection fails because of TLS: gRPC reports it only as text, which must not decide anything.

It makes one connection itself, and inspects the shown certificate and the alerts (RFC 8446, 6).
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from dataclasses import dataclass

from cryptography import x509

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.tls.files import common_name, hosts_of, read_certificates
from shardmerge.proto.tls.model import TlsFiles
from shardmerge.proto.tls.process import of_process

_SECONDS = 1.0
_KEPT_SECONDS = 5.0
_LOG_SECONDS = 30.0
# First byte of a TLS record (RFC 8446, 5.1): an alert or a handshake message.
_TLS_RECORDS = frozenset({b"\x15", b"\x16"})
# Type of an HTTP/2 frame (RFC 9113, 6.5): what both sides begin with.
_SETTINGS = 4
# X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH of OpenSSL's x509_vfy.h.
_NAME_ERRORS = frozenset({62, 64})


@dataclass(frozen=True, slots=True)
class _Found:
    at: float
    files: TlsFiles | None
    error: ShardmergeError | None


_found: dict[str, _Found] = {}
_logged_at: dict[str, float] = {}
_lock = threading.Lock()


def diagnosed(address: str) -> ShardmergeError | None:
    """:func:`diagnose` with this process's certificates, remembered for a few seconds."""
    tls = of_process()
    files = None if tls is None else tls.files
    now = time.monotonic()
    with _lock:
        known = _found.get(address)
    if known is not None and known.files == files and now - known.at < _KEPT_SECONDS:
        return known.error
    error = diagnose(address, files)
    with _lock:
        _found[address] = _Found(time.monotonic(), files, error)
    return error


def log_diagnosis(address: str, files: TlsFiles | None) -> None:
    """Log what is wrong with TLS to ``address``, in a thread, with a minimum interval."""
    now = time.monotonic()
    with _lock:
        if now - _logged_at.get(address, -_LOG_SECONDS) < _LOG_SECONDS:
            return
        _logged_at[address] = now

    def look() -> None:
        error = diagnose(address, files)
        if error is not None:
            get_logger().error("no TLS connection", error=str(error), workaround=error.workaround)

    threading.Thread(target=look, name="tls-diagnosis", daemon=True).start()


def diagnose(address: str, files: TlsFiles | None) -> ShardmergeError | None:
    """Why a client with ``files`` (None: in plain text) cannot connect to ``host:port``.

    ``errors.tls.PEER_WANTS_TLS``, ``PEER_PLAIN``, ``PEER_NAME``, ``PEER_NOT_TRUSTED`` or ``OWN_REFUSED``; None when TLS
    is not the reason, or nothing answers. Errors of ``files`` themselves come first.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        if files is not None:
            read_certificates(files)
        place = (host, int(port))
        uses_tls = _speaks_tls(place)
        if uses_tls is None:
            # etcd, for example, closes the connection after such a greeting.
            if files is None or not _speaks_plain(place):
                return None
            uses_tls = False
        if files is None:
            return errors.tls.PEER_WANTS_TLS(address=address) if uses_tls else None
        if not uses_tls:
            return errors.tls.PEER_PLAIN(address=address)
        return _handshake(address, place, files)
    except ShardmergeError as error:
        return error
    except (OSError, ValueError):
        return None


def _speaks_tls(place: tuple[str, int]) -> bool | None:
    """Whether a TLS greeting is answered in TLS; None: there is no answer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    context.check_hostname = False
    arriving, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
    greeting = context.wrap_bio(arriving, leaving, server_hostname=None)
    with contextlib.suppress(ssl.SSLWantReadError):
        greeting.do_handshake()
    with socket.create_connection(place, _SECONDS) as connection:
        connection.sendall(leaving.read())
        try:
            first = connection.recv(1)
        except (TimeoutError, ConnectionError):
            return None
    return first in _TLS_RECORDS if first else None


def _speaks_plain(place: tuple[str, int]) -> bool:
    """Whether a plain-text HTTP/2 greeting (RFC 9113, 3.4) is answered with settings."""
    with socket.create_connection(place, _SECONDS) as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, _SETTINGS, 0, 0, 0, 0, 0]))
        try:
            frame = connection.recv(9)
        except (TimeoutError, ConnectionError):
            return False
    return len(frame) > 3 and frame[3] == _SETTINGS


def _handshake(address: str, place: tuple[str, int], files: TlsFiles) -> ShardmergeError | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    # As strict as gRPC's own library, which does not require key identifiers in an authority's certificate.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.load_verify_locations(cafile=files.ca)
    if files.cert:
        context.load_cert_chain(files.cert, files.key)
    try:
        with (
            socket.create_connection(place, _SECONDS) as connection,
            context.wrap_socket(connection, server_hostname=place[0]) as secured,
        ):
            try:
                # A refusal of this side's certificate follows the handshake in TLS 1.3.
                if secured.recv(1):
                    return None
            except TimeoutError:
                return None
            reason = "it closes the connection"
    except ssl.SSLCertVerificationError as error:
        if error.verify_code in _NAME_ERRORS:
            return errors.tls.PEER_NAME(address=address, host=place[0], names=_names(place))
        return errors.tls.PEER_NOT_TRUSTED(address=address, reason=error.verify_message, ca=files.name("ca"))
    except ssl.SSLError as error:
        reason = (error.reason or "no reason was sent").replace("_", " ").lower()
    except ConnectionError:
        reason = "it closes the connection"
    return errors.tls.OWN_REFUSED(address=address, certificate=files.cert or "none", reason=reason)


def _names(place: tuple[str, int]) -> str:
    """The names in the certificate that the peer shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection(place, _SECONDS) as connection,
            context.wrap_socket(connection) as secured,
        ):
            shown = x509.load_der_x509_certificate(secured.getpeercert(binary_form=True) or b"")
    except (OSError, ValueError):
        return "others"
    return ", ".join(hosts_of(shown)) or common_name(shown) or "none"
