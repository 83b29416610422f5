"""The current content of the files of one TLS configuration; replaced files are read without a restart."""

from __future__ import annotations

import threading

import grpc

from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.proto.tls.files import Certificates, read_certificates, stamps_of
from shardmerge.proto.tls.model import TlsFiles


class CertificateStore:
    """Thread-safe. Holds the certificates of ``files``; new ones are used once they are complete and valid."""

    def __init__(self, files: TlsFiles) -> None:
        """Raises what :func:`read_certificates` does."""
        self.files = files
        self._lock = threading.Lock()
        self._stamp = stamps_of(files)
        self._held = read_certificates(files)

    def current(self) -> Certificates:
        """The certificates in the files now. Invalid files are logged once and change nothing: while two files are
        replaced one after the other, they do not match."""
        with self._lock:
            stamp = stamps_of(self.files)
            if stamp != self._stamp:
                self._stamp = stamp
                try:
                    found = read_certificates(self.files)
                except ShardmergeError as error:
                    get_logger().warning("new certificates not used", error=str(error), workaround=error.workaround)
                else:
                    if found != self._held:
                        self._held = found
                        get_logger().info("certificates replaced", **describe(self.files, found))
            return self._held

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """The credentials of a new channel."""
        held = self.current()
        return grpc.ssl_channel_credentials(held.ca, held.key or None, held.cert or None)

    def server_credentials(self) -> grpc.ServerCredentials:
        """Each connection gets the certificates of its time; a caller without a certificate is refused."""
        served = self.current()

        def now() -> grpc.ServerCertificateConfiguration:
            nonlocal served
            held = self.current()
            if held is served:
                return None  # type: ignore[return-value]  # "unchanged", which the published stubs do not know
            served = held
            return _configuration(held)

        return grpc.dynamic_ssl_server_credentials(_configuration(served), now, require_client_authentication=True)


def _configuration(held: Certificates) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(held.key, held.cert)], held.ca)


def describe(files: TlsFiles, held: Certificates) -> dict[str, str]:
    """The log fields of certificates."""
    if held.until is None:
        return {"ca": files.ca}
    return {"ca": files.ca, "cert": files.cert, "name": held.name, "until": f"{held.until:%Y-%m-%d %H:%M} UTC"}
