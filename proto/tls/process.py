"""The certificates that this process shows and trusts; files that are replaced are taken without a restart."""

from __future__ import annotations

import threading

import grpc

from proto import errors
from proto.errors import ShardmergeError
from proto.log import get_logger
from proto.tls.files import Certificates, read_certificates, readable_by_others, stamps_of
from proto.tls.model import Tls, TlsFiles


class Keeper:
    """Thread-safe. Holds the certificates of ``files``; new ones count once they are whole and right."""

    def __init__(self, files: TlsFiles) -> None:
        """Raises what :func:`read_certificates` does."""
        self.files = files
        self._lock = threading.Lock()
        self._stamp = stamps_of(files)
        self._held = read_certificates(files)

    def current(self) -> Certificates:
        """What the files hold now. Files that are wrong are told in the log, once, and change nothing: while two are
        replaced, one after the other, they do not fit together."""
        with self._lock:
            stamp = stamps_of(self.files)
            if stamp != self._stamp:
                self._stamp = stamp
                try:
                    found = read_certificates(self.files)
                except ShardmergeError as error:
                    get_logger().warning("new certificates not taken", error=str(error), workaround=error.workaround)
                else:
                    if found != self._held:
                        self._held = found
                        get_logger().info("certificates taken", **told(self.files, found))
            return self._held

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Of one channel that is made now."""
        held = self.current()
        return grpc.ssl_channel_credentials(held.ca, held.key or None, held.cert or None)

    def server_credentials(self) -> grpc.ServerCredentials:
        """Every connection meets the certificates of its moment; a caller without one of its own is refused."""
        given = self.current()

        def now() -> grpc.ServerCertificateConfiguration:
            nonlocal given
            held = self.current()
            if held is given:
                return None  # type: ignore[return-value]  # "unchanged", which the published stubs do not know
            given = held
            return _served(held)

        return grpc.dynamic_ssl_server_credentials(_served(given), now, require_client_authentication=True)


def _served(held: Certificates) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(held.key, held.cert)], held.ca)


def told(files: TlsFiles, held: Certificates) -> dict[str, str]:
    """What a log may say of certificates."""
    if held.until is None:
        return {"ca": files.ca}
    return {"ca": files.ca, "cert": files.cert, "name": held.name, "until": f"{held.until:%Y-%m-%d %H:%M} UTC"}


class _Process:
    tls: Tls | None = None
    keeper: Keeper | None = None


def use(tls: Tls | None) -> None:
    """Let the servers and channels of this process speak TLS; None: plain text.

    Of the whole process, like its log: a Spark task opens its channel far from where the daemon's file is read.
    Raises what :func:`read_certificates` does.
    """
    if tls is None:
        _Process.tls = _Process.keeper = None
        return
    if _Process.keeper is None or _Process.keeper.files != tls.files:
        # Should the files be wrong, nothing is sent in plain text instead.
        _Process.tls, _Process.keeper = tls, None
        _Process.keeper = Keeper(tls.files)
    _Process.tls = tls


def use_anew(tls: Tls | None) -> None:
    """:func:`use`, by what the files hold now: for a process that serves one caller after the other, and may have read
    them long ago. What it read before is no way out."""
    use(None)
    use(tls)


def begin(tls: Tls | None, etcd: TlsFiles | None = None) -> None:
    """:func:`use` at the start of a daemon: what is unwise is told in the log, of the files for ``etcd`` too.

    Raises, besides, ``errors.tls.OWN_NAME`` where the process would refuse its own calls.
    """
    use(tls)
    held = current()
    if tls is not None and held is not None:
        if tls.allowed_names and held.name not in tls.allowed_names:
            raise errors.tls.OWN_NAME(name=held.name or "(none)", certificate=tls.files.cert)
        get_logger().info("TLS between the processes", **told(tls.files, held))
    files = [each for each in (None if tls is None else tls.files, etcd) if each is not None]
    for warning in {each.key: key_warning(each) for each in files}.values():
        if warning is not None:
            get_logger().warning("unsafe key file", error=str(warning), workaround=warning.workaround)


def key_warning(files: TlsFiles) -> ShardmergeError | None:
    """KEY_READABLE when every user of this machine can read the key."""
    mode = readable_by_others(files)
    return errors.tls.KEY_READABLE(path=files.key, mode=mode) if mode else None


def of_process() -> Tls | None:
    """What :func:`use` was told."""
    return _Process.tls


def keeper() -> Keeper | None:
    """The certificates of this process, None for plain text. Raises what :func:`use` did."""
    if _Process.keeper is None and _Process.tls is not None:
        use(_Process.tls)
    return _Process.keeper


def keeper_of(files: TlsFiles) -> Keeper:
    """That of the process where the files are the same, else one of their own. Raises what Keeper does."""
    own = keeper()
    return own if own is not None and own.files == files else Keeper(files)


def current() -> Certificates | None:
    """What a channel that is made now is made with; another object once the files have changed."""
    own = keeper()
    return None if own is None else own.current()


def name_allowed(name: str) -> bool:
    """Whether calls by the certificate of ``name`` are taken."""
    tls = _Process.tls
    return tls is None or not tls.allowed_names or name in tls.allowed_names
