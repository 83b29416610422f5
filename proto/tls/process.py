"""The certificates that this process shows and trusts.

What reads certificates is imported only where TLS is used: dmctl in plain text starts faster without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.tls.model import Tls, TlsFiles

if TYPE_CHECKING:
    from shardmerge.proto.tls.files import Certificates
    from shardmerge.proto.tls.store import CertificateStore


class _Process:
    tls: Tls | None = None
    keeper: CertificateStore | None = None


def use(tls: Tls | None) -> None:
    """Let the servers and channels of this process use TLS; None: plain text.

    The setting is global to the process, like its log: a Spark task opens its channel far from where the daemon's file
    is read. Raises what :func:`shardmerge.proto.tls.files.read_certificates` does.
    """
    if tls is None:
        _Process.tls = _Process.keeper = None
        return
    if _Process.keeper is None or _Process.keeper.files != tls.files:
        from shardmerge.proto.tls.store import CertificateStore

        # If the files are invalid, nothing is sent in plain text instead.
        _Process.tls, _Process.keeper = tls, None
        _Process.keeper = CertificateStore(tls.files)
    _Process.tls = tls


def use_fresh(tls: Tls | None) -> None:
    """:func:`use` with the files as they are now: for a process that serves one caller after the other, and may have
    read them long ago. What it read before is not used instead."""
    use(None)
    use(tls)


def use_in_daemon(tls: Tls | None, etcd: TlsFiles | None = None) -> None:
    """:func:`use` at the start of a daemon: it logs warnings, about the files for ``etcd`` too.

    Raises ``errors.tls.OWN_NAME``, too, if the process would refuse its own calls.
    """
    from shardmerge.proto.log import get_logger

    use(tls)
    held = current()
    if tls is not None and held is not None:
        if tls.allowed_names and held.name not in tls.allowed_names:
            raise errors.tls.OWN_NAME(name=held.name or "(none)", certificate=tls.files.cert)
        from shardmerge.proto.tls.store import describe

        get_logger().info("TLS between the processes", **describe(tls.files, held))
    files = [each for each in (None if tls is None else tls.files, etcd) if each is not None]
    for warning in {each.key: key_warning(each) for each in files}.values():
        if warning is not None:
            get_logger().warning("unsafe key file", error=str(warning), workaround=warning.workaround)


def key_warning(files: TlsFiles) -> ShardmergeError | None:
    """KEY_READABLE when every user of this machine can read the key."""
    from shardmerge.proto.tls.files import readable_by_others

    mode = readable_by_others(files)
    return errors.tls.KEY_READABLE(path=files.key, mode=mode) if mode else None


def of_process() -> Tls | None:
    """The TLS settings of :func:`use`."""
    return _Process.tls


def certificate_store() -> CertificateStore | None:
    """The certificates of this process, None for plain text. Raises what :func:`use` did."""
    if _Process.keeper is None and _Process.tls is not None:
        use(_Process.tls)
    return _Process.keeper


def store_for(files: TlsFiles) -> CertificateStore:
    """The store of the process if the files are the same, else a new one. Raises what :class:`CertificateStore`
    does."""
    from shardmerge.proto.tls.store import CertificateStore

    own = certificate_store()
    return own if own is not None and own.files == files else CertificateStore(files)


def current() -> Certificates | None:
    """The certificates for a new channel; another object once the files have changed."""
    own = certificate_store()
    return None if own is None else own.current()


def name_allowed(name: str) -> bool:
    """Whether calls with the certificate of ``name`` are accepted."""
    tls = _Process.tls
    return tls is None or not tls.allowed_names or name in tls.allowed_names
