"""Two small certificate authorities: for a cluster's processes and its dmctl, and for its etcd (RFC 5280).

    ca.pem, ca.key           the authority of the processes
    ca.crl                   its revoked certificates
    <name>.pem, <name>.key   one pair for each process, and for dmctl
    etcd/                    the same for etcd: pairs of its members, and one for each process that is its client

The records in etcd instruct all workers: a certificate that may call a master should not be able to write them. Keys
are P-256, unencrypted PKCS #8 in PEM. Existing files are never overwritten, except by a list of revoked certificates
that has more of them.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import stat
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.files.durable_file import (
    private_descriptor,
    private_folder,
    sync_directory,
    tighten,
    write_durably,
)
from shardmerge.proto.tls.files import common_name

OPERATOR = "dmctl"
"""Name of the certificate for the operator who runs dmctl."""
ETCD = "etcd"
"""The folder of etcd's authority, within that of the processes' authority."""
AUTHORITY_DAYS = 3650
MEMBER_DAYS = 825
"""The longest validity that is widely accepted for a server's certificate (CA/Browser Forum, Baseline Requirements of
2018)."""

_CA = "ca"
_LIST = f"{_CA}.crl"
_ALWAYS = ("127.0.0.1", "localhost")
_CLOCK_SKEW = datetime.timedelta(hours=1)
_NEW_NAME = "Give a new name, or remove the two files if no process uses them."
_MADE_HERE = f"Name a certificate NAME.pem that `dmctl tls init` has made in this folder, or in its folder {ETCD}."


@dataclass(frozen=True, slots=True)
class CertificateSubject:
    """One certificate to make. ``hosts``: names and addresses that others connect to, except the loopback ones; None:
    it is for a client only."""

    name: str
    hosts: tuple[str, ...] | None = ()


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """What was written. ``authority``: whether it is new; ``members``: the names that have files now."""

    authority: bool
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Revoked:
    """What was revoked by each authority. ``accepted``: the common names of the processes' certificates that are not
    revoked, for cert-allowed-cn."""

    processes: tuple[str, ...]
    etcd: tuple[str, ...]
    accepted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Authority:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


def parse_member(text: str) -> CertificateSubject:
    """``name=host,host``, or a name alone. Pure. Raises ValueError."""
    name, _, listed = text.partition("=")
    hosts = tuple(dict.fromkeys(filter(None, (host.strip() for host in listed.split(",")))))
    for host in hosts:
        _name_of(host)
    return CertificateSubject(parse_name(name), hosts)


def parse_name(text: str) -> str:
    """A common name, which is that of its files too. Pure. Raises ValueError."""
    if not text or text in (_CA, ".", "..") or not all(mark.isalnum() or mark in "-_." for mark in text):
        raise ValueError(f"{text!r}: a name has letters, digits, -, _ and ., and is not {_CA!r}")
    if len(text) > 64:
        raise ValueError(f"{text!r}: a common name has at most 64 characters (RFC 5280, ub-common-name)")
    return text


def make(
    folder: Path,
    members: Sequence[CertificateSubject],
    days: int = MEMBER_DAYS,
    *,
    etcd: Sequence[CertificateSubject] = (),
) -> tuple[WrittenFiles, WrittenFiles | None]:
    """Write the authority, if there is none, and certificates of ``members`` and of dmctl, if it has none. If there are
    members of ``etcd``, or its authority exists, the same for etcd, with a client's certificate for each process.

    A process that has one of its two pairs gets the other one. Raises ``errors.ctl.TLS_INIT``; then nothing was
    written, unless the disk failed.
    """
    names = [member.name for member in (*members, *etcd)]
    if len(set(names)) < len(names):
        raise _refused(folder, "a name is listed twice", "List each name once.")
    inner = folder / ETCD
    try:
        known, known_of_etcd = _found(folder), _found(inner)
        has_etcd = bool(etcd) or known_of_etcd is not None
        processes = [one for one in members if has_etcd and one.hosts is not None and one.name != OPERATOR]
        # A name with hosts asks for a new pair: those of an existing one cannot be changed.
        known_to_processes = {one.name for one in processes if not one.hosts and not _taken(inner, one.name)}
        known_to_etcd = {one.name for one in processes if not _taken(folder, one.name)}
        wanted = _missing(folder, members, known_to_processes)
        wanted_of_etcd = _missing(
            inner, (*etcd, *(CertificateSubject(one.name, None) for one in processes)), known_to_etcd
        )
        if OPERATOR not in names and not (folder / f"{OPERATOR}.pem").exists():
            wanted.append(CertificateSubject(OPERATOR, None))
        made = _make(folder, known, "shardmerge authority", wanted, days)
        if not has_etcd:
            return made, None
        return made, _make(inner, known_of_etcd, "shardmerge etcd authority", wanted_of_etcd, days)
    except OSError as error:
        raise _refused(folder, error.strerror or str(error), "Give a folder that this user may write to.") from error


def revoke(folder: Path, names: Sequence[str]) -> Revoked:
    """Add the certificates ``<name>.pem`` to the list of each authority that has made one. Raises
    ``errors.ctl.TLS_INIT``; then nothing was written, unless the disk failed."""
    there = {place: [name for name in names if (place / f"{name}.pem").exists()] for place in (folder / ETCD, folder)}
    for name in set(names).difference(*there.values()):
        raise _refused(folder / f"{name}.pem", f"there is no such file, and none in {ETCD}", _MADE_HERE)
    contents: dict[Path, bytes] = {}
    accepted: tuple[str, ...] = ()
    try:
        for place, found in there.items():
            if found and (authority := _found(place)):
                before = _listed(place, authority)
                serials = [_issued(place / f"{name}.pem", authority).serial_number for name in found]
                contents[place / _LIST] = _new_list(authority, before, serials)
                accepted = _accepted(place, authority, {*serials, *(each.serial_number for each in before)})
        for path, content in contents.items():
            write_durably(path, content)
    except OSError as error:
        raise _refused(folder, error.strerror or str(error), "Give a folder that this user may write to.") from error
    return Revoked(tuple(there[folder]), tuple(there[folder / ETCD]), accepted if there[folder] else ())


def _taken(folder: Path, name: str) -> Path | None:
    """A file of the pair that exists."""
    return next((path for path in (folder / f"{name}.pem", folder / f"{name}.key") if os.path.lexists(path)), None)


def _missing(
    folder: Path, members: Sequence[CertificateSubject], may_exist: Collection[str]
) -> list[CertificateSubject]:
    """Those without a pair, which only members of ``may_exist`` may have."""
    taken = {member.name: path for member in members if (path := _taken(folder, member.name))}
    for name, path in taken.items():
        if name not in may_exist:
            raise _refused(path, "it exists already", _NEW_NAME)
    return [member for member in members if member.name not in taken]


def _make(
    folder: Path, known: _Authority | None, title: str, members: Sequence[CertificateSubject], days: int
) -> WrittenFiles:
    private_folder(folder)
    _take_from_others(folder)
    authority = known or _new_authority(folder, title)
    for member in members:
        _issue(folder, member, authority, days)
    # An etcd whose --client-crl-file is missing refuses every caller: so that it can have the option from the start.
    if known is None:
        write_durably(folder / _LIST, _new_list(authority, (), ()))
    sync_directory(folder)
    return WrittenFiles(known is None, tuple(member.name for member in members))


def _issued(path: Path, authority: _Authority) -> x509.Certificate:
    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
        found.verify_directly_issued_by(authority.certificate)
    except (ValueError, TypeError, InvalidSignature):
        raise _refused(path, f"it is no certificate of the authority in {path.parent}", _MADE_HERE) from None
    return found


def _accepted(folder: Path, authority: _Authority, revoked: Collection[int]) -> tuple[str, ...]:
    """The common names of which no certificate is revoked: a process knows its callers by the name only."""
    issued: list[x509.Certificate] = []
    for path in sorted(set(folder.glob("*.pem")) - {folder / f"{_CA}.pem"}):
        with suppress(ShardmergeError):
            issued.append(_issued(path, authority))
    refused = {common_name(each) for each in issued if each.serial_number in revoked}
    return tuple(dict.fromkeys(name for name in map(common_name, issued) if name not in refused))


def _listed(folder: Path, authority: _Authority) -> Sequence[x509.RevokedCertificate]:
    path = folder / _LIST
    try:
        if not path.exists():
            return ()
        found = x509.load_der_x509_crl(path.read_bytes())
        if found.is_signature_valid(authority.key.public_key()):
            return tuple(found)
    except ValueError:
        pass
    raise _refused(path, f"it is no list of the authority in {folder}, in DER form", "Move it away.")


def _new_list(authority: _Authority, before: Sequence[x509.RevokedCertificate], serials: Sequence[int]) -> bytes:
    """A list of ``before`` and ``serials``, in DER: etcd 3.4 reads PEM too, later versions do not.

    It is valid as long as its authority, because nothing renews it: a program that checks its end (etcd does not) would
    refuse every certificate after it.
    """
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateRevocationListBuilder().issuer_name(authority.certificate.subject)
    made = made.last_update(now - _CLOCK_SKEW).next_update(authority.certificate.not_valid_after_utc)
    made = made.add_extension(x509.CRLNumber(int(now.timestamp() * 1000)), critical=False)
    made = made.add_extension(_issuer_key(authority), critical=False)
    for serial in set(serials).difference(each.serial_number for each in before):
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now)
        before = (*before, entry.build())
    for each in before:
        made = made.add_revoked_certificate(each)
    return made.sign(authority.key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


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


def _new_authority(folder: Path, title: str) -> _Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _named(title)
    made = _about(name, name, key.public_key(), AUTHORITY_DAYS)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    made = made.add_extension(_usage(signs_certificates=True), critical=True)
    certificate = made.sign(key, hashes.SHA256())
    _write(folder / f"{_CA}.key", _pem_of_key(key))
    _write(folder / f"{_CA}.pem", certificate.public_bytes(serialization.Encoding.PEM))
    return _Authority(certificate, key)


def _issue(folder: Path, member: CertificateSubject, authority: _Authority, days: int) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    made = _about(authority.certificate.subject, _named(member.name), key.public_key(), days)
    made = made.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    made = made.add_extension(_usage(signs_certificates=False), critical=True)
    usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if member.hosts is not None:
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, *usages]
        hosts = tuple(dict.fromkeys((*member.hosts, *_ALWAYS)))
        made = made.add_extension(x509.SubjectAlternativeName([_name_of(host) for host in hosts]), critical=False)
    made = made.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    certificate = made.add_extension(_issuer_key(authority), critical=False).sign(authority.key, hashes.SHA256())
    _write(folder / f"{member.name}.key", _pem_of_key(key))
    _write(folder / f"{member.name}.pem", certificate.public_bytes(serialization.Encoding.PEM))


def _about(issuer: x509.Name, subject: x509.Name, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder().issuer_name(issuer).subject_name(subject).public_key(key)
    made = made.serial_number(x509.random_serial_number())
    # A machine whose clock is slightly late accepts it, too.
    made = made.not_valid_before(now - _CLOCK_SKEW).not_valid_after(now + datetime.timedelta(days=days))
    return made.add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _issuer_key(authority: _Authority) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())


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
