"""Reads when the certificates that a daemon uses end, from their files and texts. No key is read."""

from __future__ import annotations

import enum
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from shardmerge.proto.files.file_stamp import Stamp, stamp_of
from shardmerge.proto.pem import pem_of
from shardmerge.proto.tls.model import TlsFiles
from shardmerge.proto.warnings import kinds
from shardmerge.proto.warnings.readable import duration, moment
from shardmerge.proto.worker_pb2 import StatusWarning

WARNING_SECONDS = 14 * 86_400.0
"""A certificate that ends sooner is reported."""

_LARGEST = 4 << 20
_TODO = (
    "Put a new certificate and its key in the place of the old ones (docs/how-to/tls.md); a running process takes them "
    "by itself. A certificate in a source or task file: change the file, then operate-source update or update-task."
)


class Use(enum.Enum):
    """What a certificate is for: the label of its metric. ``…-ca``: an authority that is trusted for it."""

    OWN = "own"
    OWN_CA = "ca"
    ETCD = "etcd"
    ETCD_CA = "etcd-ca"
    SOURCE = "source"
    SOURCE_CA = "source-ca"
    TARGET = "target"
    TARGET_CA = "target-ca"

    @property
    def is_authority(self) -> bool:
        return self in (Use.OWN_CA, Use.ETCD_CA, Use.SOURCE_CA, Use.TARGET_CA)


@dataclass(frozen=True, slots=True)
class CertificateFile:
    """Certificates in the file ``path``, or with ``path`` "" the text ``content``. ``whose``: for messages, such as
    "source mysql-01"."""

    use: Use
    whose: str
    path: str = ""
    content: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class CertificateEnd:
    """``ends``: Unix seconds."""

    file: CertificateFile
    ends: float


def files_of_daemon(tls: TlsFiles | None, etcd: TlsFiles | None) -> tuple[CertificateFile, ...]:
    """The certificates of a process, and those with which it connects to etcd unless they are the same."""
    found: list[CertificateFile] = []
    if tls is not None:
        found += [CertificateFile(Use.OWN_CA, "this daemon", tls.ca), CertificateFile(Use.OWN, "this daemon", tls.cert)]
    if etcd is not None:
        found += [CertificateFile(Use.ETCD_CA, "etcd", etcd.ca), CertificateFile(Use.ETCD, "etcd", etcd.cert)]
    return tuple(each for each in found if each.path)


class CertificateEnds:
    """Reads files again only when they have changed. Used by one thread."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[Stamp | None, tuple[float, ...]]] = {}

    def read(self, files: Iterable[CertificateFile]) -> tuple[CertificateEnd, ...]:
        """Files that cannot be read have no end: what uses them reports that."""
        found: list[CertificateEnd] = []
        wanted = list(files)
        for file in wanted:
            ends = self._ends(file)
            if ends:
                found.append(CertificateEnd(file, relevant_end(ends, time.time(), file.use)))
        for path in self._read.keys() - {file.path for file in wanted}:
            del self._read[path]
        return tuple(found)

    def _ends(self, file: CertificateFile) -> tuple[float, ...]:
        if not file.path:
            return ends_of(_bytes_of(file.content))
        stamp = stamp_of(file.path)
        known = self._read.get(file.path)
        if known is None or known[0] != stamp:
            known = self._read[file.path] = stamp, ends_of(_content(file.path))
        return known[1]


def ends_of(content: bytes) -> tuple[float, ...]:
    """The ends of all certificates of a PEM text, in Unix seconds; none if it cannot be parsed. Pure."""
    from cryptography import x509  # 0.1 s of every start otherwise

    try:
        return tuple(each.not_valid_after_utc.timestamp() for each in x509.load_pem_x509_certificates(content))
    except ValueError:
        return ()


def relevant_end(ends: tuple[float, ...], now: float, use: Use) -> float:
    """Of a chain: its first end, after which it is refused. Of authorities: the first that has not passed, because
    others in the file may be older ones; if all have passed, the last. Pure."""
    if not use.is_authority:
        return min(ends)
    return min((each for each in ends if each > now), default=max(ends))


def first_ends(found: Iterable[CertificateEnd]) -> Mapping[Use, float]:
    """The first end of each use. Pure."""
    ends: dict[Use, float] = {}
    for each in found:
        ends[each.file.use] = min(each.ends, ends.get(each.file.use, each.ends))
    return ends


def certificate_warnings(found: Iterable[CertificateEnd], now: float) -> Iterator[StatusWarning]:
    """A warning for each file that ends within two weeks, the first one first. Pure."""
    due = sorted((each for each in found if each.ends - now < WARNING_SECONDS), key=lambda each: each.ends)
    seen: set[str] = set()
    for each in due:
        file = each.file
        identity = file.path or f"{file.use.value} {file.whose}"
        if identity in seen:  # a file may have several uses
            continue
        seen.add(identity)
        what = "the authority that is trusted for" if file.use.is_authority else "the certificate of"
        left = each.ends - now
        ended = f"ends at {moment(each.ends)}, in {duration(left)}" if left > 0 else f"ended at {moment(each.ends)}"
        where = f" ({file.path})" if file.path else ""
        message = f"{what} {file.whose}{where} {ended}"
        yield StatusWarning(name=kinds.CERTIFICATE_EXPIRING, message=message, workaround=_TODO, due=each.ends)


def _bytes_of(content: str) -> bytes:
    try:
        return pem_of(content).encode("ascii", "replace")
    except ValueError:
        return b""


def _content(path: str) -> bytes:
    """Of a regular file only: a pipe would hold the thread until another process writes to it."""
    if not Path(path).is_file():
        return b""
    try:
        with Path(path).open("rb") as file:
            return file.read(_LARGEST)
    except OSError:
        return b""
