"""Why no connection comes about, as far as TLS is the reason: gRPC tells it in words only, which decide nothing here.

One connection is made by hand, and the certificate that is shown and the alerts (RFC 8446, 6) are looked at.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from dataclasses import dataclass

from cryptography import x509

from proto import errors
from proto.errors import ShardmergeError
from proto.log import get_logger
from proto.tls.files import common_name, hosts_of, read_certificates
from proto.tls.model import TlsFiles
from proto.tls.process import of_process

_SECONDS = 1.0
_KEPT_SECONDS = 5.0
_TOLD_SECONDS = 30.0
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
_told: dict[str, float] = {}
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


def tell(address: str, files: TlsFiles | None) -> None:
    """Put what is wrong with TLS to ``address`` into the log, without waiting for it, now and then at most."""
    now = time.monotonic()
    with _lock:
        if now - _told.get(address, -_TOLD_SECONDS) < _TOLD_SECONDS:
            return
        _told[address] = now

    def look() -> None:
        error = diagnose(address, files)
        if error is not None:
            get_logger().error("no TLS connection", error=str(error), workaround=error.workaround)

    threading.Thread(target=look, name="tls-diagnosis", daemon=True).start()


def diagnose(address: str, files: TlsFiles | None) -> ShardmergeError | None:
    """What keeps a client with ``files`` (None: of plain text) from ``host:port``.

    ``errors.tls.PEER_WANTS_TLS``, ``PEER_PLAIN``, ``PEER_NAME``, ``PEER_NOT_TRUSTED`` or ``OWN_REFUSED``; None when TLS
    is not the reason, or nobody answers. First of all what is wrong with ``files`` themselves.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        if files is not None:
            read_certificates(files)
        place = (host, int(port))
        speaks = _speaks_tls(place)
        if speaks is None:
            # etcd, for one, hangs up when it is greeted so.
            if files is None or not _speaks_plain(place):
                return None
            speaks = False
        if files is None:
            return errors.tls.PEER_WANTS_TLS(address=address) if speaks else None
        if not speaks:
            return errors.tls.PEER_PLAIN(address=address)
        return _handshake(address, place, files)
    except ShardmergeError as error:
        return error
    except (OSError, ValueError):
        return None


def _speaks_tls(place: tuple[str, int]) -> bool | None:
    """Whether a greeting of TLS is answered in TLS; None: it is not answered."""
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
    """Whether a greeting of HTTP/2 in plain text (RFC 9113, 3.4) is answered by its settings."""
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
    # As strict as gRPC's own library, which does not ask for key identifiers in an authority's certificate.
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
        reason = (error.reason or "no reason was given").replace("_", " ").lower()
    except ConnectionError:
        reason = "it closes the connection"
    return errors.tls.OWN_REFUSED(address=address, certificate=files.cert or "none", reason=reason)


def _names(place: tuple[str, int]) -> str:
    """The names that the certificate shown there is for."""
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
