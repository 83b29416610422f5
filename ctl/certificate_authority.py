"""A small certificate authority in one folder, for a cluster's processes and its dmctl (RFC 5280).

    ca.pem, ca.key           the authority
    <name>.pem, <name>.key   one pair for each process, and for dmctl

Keys are P-256, unencrypted PKCS #8 in PEM. Existing files are never overwritten.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.files.durable_file import private_descriptor, private_folder, sync_directory, tighten

OPERATOR = "dmctl"
"""Name of the certificate for the operator who runs dmctl."""
AUTHORITY_DAYS = 3650
MEMBER_DAYS = 825
"""The longest validity that is widely accepted for a server's certificate (CA/Browser Forum, Baseline Requirements of
2018)."""

_CA = "ca"
_ALWAYS = ("127.0.0.1", "localhost")
_CLOCK_SKEW = datetime.timedelta(hours=1)
_NEW_NAME = "Give a new name, or remove the two files if no process uses them."


@dataclass(frozen=True, slots=True)
class Member:
    """One certificate to make. ``hosts``: names and addresses that others connect to, except the loopback ones."""

    name: str
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """What was written. ``authority``: whether it is new; ``members``: the names that have files now."""

    authority: bool
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def parse_member(text: str) -> Member:
    """``name=host,host``, or a name alone. Pure. Raises ValueError."""
    name, _, listed = text.partition("=")
    if not name or name in (_CA, ".", "..") or not all(mark.isalnum() or mark in "-_." for mark in name):
        raise ValueError(f"{text!r}: a name has letters, digits, -, _ and ., and is not {_CA!r}")
    if len(name) > 64:
        raise ValueError(f"{text!r}: a common name has at most 64 characters (RFC 5280, ub-common-name)")
    hosts = tuple(dict.fromkeys(filter(None, (host.strip() for host in listed.split(",")))))
    for host in hosts:
        _name_of(host)
    return Member(name, hosts)


def make(folder: Path, members: Sequence[Member], days: int = MEMBER_DAYS) -> WrittenFiles:
    """Write the authority, if there is none, and certificates of ``members`` and of dmctl, if it has none.

    Raises ``errors.ctl.TLS_INIT``; then nothing was written, unless the disk failed.
    """
    names = [member.name for member in members]
    if len(set(names)) < len(names):
        raise _refused(folder, "a name is listed twice", "List each name once.")
    try:
        known = _found(folder)
        for member in members:
            for path in (folder / f"{member.name}.pem", folder / f"{member.name}.key"):
                if os.path.lexists(path):
                    raise _refused(path, "it exists already", _NEW_NAME)
        operator = () if OPERATOR in names or (folder / f"{OPERATOR}.pem").exists() else (Member(OPERATOR),)
        private_folder(folder)
        _take_from_others(folder)
        authority = known or _new_authority(folder)
        for member in (*members, *operator):
            _issue(folder, member, authority, days)
        sync_directory(folder)
    except OSError as error:
        raise _refused(folder, error.strerror or str(error), "Give a folder that this user may write to.") from error
    return WrittenFiles(known is None, tuple(member.name for member in (*members, *operator)))


def _found(folder: Path) -> _Authority | None:
    """The authority in ``folder``; None: there is no such folder, or an empty one."""
    if not folder.is_dir():
        if os.path.lexists(folder):
            raise _refused(folder, "it is no folder", "Give another path with --dir.")
        return None
    certificate, key = folder / f"{_CA}.pem", folder / f"{_CA}.key"
    there = [path.exists() for path in (certificate, key)]
    if not any(there):
        if any(folder.iterdir()):
            raise _refused(folder, "it contains other files", "Give an empty or a new folder with --dir.")
        return None
    if not all(there):
        reason = f"it holds one of {_CA}.pem and {_CA}.key"
        raise _refused(folder, reason, f"Put {_CA}.key of this authority there, or start again in another folder.")
    try:
        loaded = x509.load_pem_x509_certificate(certificate.read_bytes())
        signing = serialization.load_pem_private_key(key.read_bytes(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise _refused(folder, "its authority cannot be read", "Unencrypted PEM is read.") from None
    if not isinstance(signing, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise _refused(key, "it is neither an EC nor an RSA key", "Start again in another folder.")
    if signing.public_key() != loaded.public_key():
        raise _refused(key, f"it does not belong to {certificate}", f"Put {_CA}.key of this authority there.")
    return _Authority(loaded, signing)


def _take_from_others(folder: Path) -> None:
    if stat.S_IMODE(folder.stat().st_mode) & 0o077:
        tighten(folder)


def _new_authority(folder: Path) -> _Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _named("shardmerge authority")
    made = _about(name, name, key.public_key(), AUTHORITY_DAYS)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    made = made.add_extension(_usage(signs_certificates=True), critical=True)
    certificate = made.sign(key, hashes.SHA256())
    _write(folder / f"{_CA}.key", _pem_of_key(key))
    _write(folder / f"{_CA}.pem", certificate.public_bytes(serialization.Encoding.PEM))
    return _Authority(certificate, key)


def _issue(folder: Path, member: Member, authority: _Authority, days: int) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    hosts = tuple(dict.fromkeys((*member.hosts, *_ALWAYS)))
    made = _about(authority.certificate.subject, _named(member.name), key.public_key(), days)
    made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    made = made.add_extension(_usage(signs_certificates=False), critical=True)
    both = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
    made = made.add_extension(x509.ExtendedKeyUsage(both), critical=False)
    made = made.add_extension(x509.SubjectAlternativeName([_name_of(host) for host in hosts]), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    certificate = made.add_extension(issuer, critical=False).sign(authority.key, hashes.SHA256())
    _write(folder / f"{member.name}.key", _pem_of_key(key))
    _write(folder / f"{member.name}.pem", certificate.public_bytes(serialization.Encoding.PEM))


def _about(issuer: x509.Name, subject: x509.Name, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder().issuer_name(issuer).subject_name(subject).public_key(key)
    made = made.serial_number(x509.random_serial_number())
    # A machine whose clock is slightly late accepts it, too.
    made = made.not_valid_before(now - _CLOCK_SKEW).not_valid_after(now + datetime.timedelta(days=days))
    return made.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _name_of(host: str) -> x509.GeneralName:
    """The host as an entry of the certificate. Raises ValueError for a text that is neither an address nor a name."""
    try:
        return x509.IPAddress(ipaddress.ip_address(host.strip("[]")))
    except ValueError:
        if ":" in host or "/" in host or any(mark.isspace() for mark in host):
            raise ValueError(f"{host!r} is neither a host name nor an address; leave the port out") from None
        return x509.DNSName(host.encode("idna").decode())


def _pem_of_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _write(path: Path, content: bytes) -> None:
    with os.fdopen(private_descriptor(path, os.O_WRONLY | os.O_EXCL), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _refused(path: Path, reason: str, instruction: str) -> ShardmergeError:
    return errors.ctl.TLS_INIT(path=path, reason=reason, instruction=instruction)
