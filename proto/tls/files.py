"""Reads the PEM files of one process and checks them before anything is sent with them."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.errors import tls as errors
from shardmerge.proto.files.file_stamp import Stamp, stamp_of
from shardmerge.proto.tls.model import TlsFiles

_LARGEST = 4 << 20
_READABLE_BY_OTHERS = 0o004


@dataclass(frozen=True, slots=True)
class Certificates:
    """The content of the files, PEM. ``name``: the common name of the own certificate, "" for none; ``until``: its end.

    ``hosts``: the names that the own certificate is for.
    """

    ca: bytes
    cert: bytes
    key: bytes = field(repr=False)
    name: str
    hosts: tuple[str, ...]
    until: datetime.datetime | None


def read_certificates(files: TlsFiles) -> Certificates:
    """The content of ``files``, which fits together and is valid now.

    Raises ``errors.tls.FILE_UNUSABLE``, ``KEY_DIFFERS`` and ``NOT_VALID_NOW``. No message contains a key.
    """
    ca = _content(files, "ca", files.ca)
    authorities = _parsed(files, "ca", files.ca, ca)
    if not any(_is_valid(each) for each in authorities):
        raise _not_valid(files.ca, authorities[0])
    if not files.cert:
        return Certificates(ca, b"", b"", "", (), None)
    cert = _content(files, "cert", files.cert)
    own = _parsed(files, "cert", files.cert, cert)[0]
    key = _content(files, "key", files.key)
    if _public_part(files, key) != own.public_key().public_bytes(*_PUBLIC):
        raise errors.KEY_DIFFERS(key=files.key, certificate=files.cert)
    if not _is_valid(own):
        raise _not_valid(files.cert, own)
    return Certificates(ca, cert, key, common_name(own), hosts_of(own), own.not_valid_after_utc)


def readable_by_others(files: TlsFiles) -> str:
    """The key file's mode as ``chmod`` writes it when every user of the machine can read it, else ""."""
    try:
        mode = Path(files.key).stat().st_mode & 0o777 if files.key else 0
    except OSError:
        return ""
    return f"{mode:03o}" if mode & _READABLE_BY_OTHERS else ""


def stamps_of(files: TlsFiles) -> tuple[Stamp | None, ...]:
    """A value that changes when one of the files is written or replaced."""
    return tuple(stamp_of(path) for path in files.paths)


def common_name(certificate: x509.Certificate) -> str:
    """The first common name of the subject, "" without one."""
    found = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if found else ""


def hosts_of(certificate: x509.Certificate) -> tuple[str, ...]:
    """DNS names and IP addresses of the subjectAltName (RFC 5280, 4.2.1.6)."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    addresses = names.get_values_for_type(x509.IPAddress)
    return (*names.get_values_for_type(x509.DNSName), *(str(address) for address in addresses))


_PUBLIC = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)


def _content(files: TlsFiles, part: str, path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(_LARGEST)
    except OSError as error:
        reason = error.strerror or "input/output error"
        raise errors.FILE_UNUSABLE(key=files.name(part), path=path, reason=reason) from None


def _parsed(files: TlsFiles, part: str, path: str, content: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError:
        reason = "it holds no certificate in PEM form"
        raise errors.FILE_UNUSABLE(key=files.name(part), path=path, reason=reason) from None


def _public_part(files: TlsFiles, content: bytes) -> bytes:
    try:
        key = serialization.load_pem_private_key(content, None)
    except TypeError:
        reason = "it is encrypted by a passphrase; take that off (openssl pkey -in … -out …)"
    except (ValueError, UnsupportedAlgorithm):
        reason = "it holds no private key in PEM form"
    else:
        return key.public_key().public_bytes(*_PUBLIC)
    raise errors.FILE_UNUSABLE(key=files.name("key"), path=files.key, reason=reason)


def _is_valid(certificate: x509.Certificate) -> bool:
    now = datetime.datetime.now(datetime.UTC)
    return certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc


def _not_valid(path: str, certificate: x509.Certificate) -> ShardmergeError:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return errors.NOT_VALID_NOW(path=path, begin=f"{begin:%Y-%m-%d %H:%M:%S} UTC", end=f"{end:%Y-%m-%d %H:%M:%S} UTC")
