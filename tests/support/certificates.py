"""Provides a certificate authority for tests: makes valid and invalid PEM files for the processes."""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from shardmerge.proto.tls.model import TlsFiles

BOTH = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


class Authority:
    """A certificate authority. ``ca``: its certificate; ``directory``: the folder of all files."""

    def __init__(self, directory: Path, name: str = "cluster authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.ca = str(directory / "ca.pem")
        made = _about(self._name, self._name, self._key.public_key(), 3650)
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        _write(self.ca, made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        file: str,
        name: str,
        *,
        hosts: Sequence[str] = ("127.0.0.1", "localhost"),
        days: int = 30,
        usages: Sequence[ObjectIdentifier] = BOTH,
    ) -> TlsFiles:
        """Write ``<file>.pem`` and ``<file>.key`` for common name ``name``, and replace older ones. ``days`` below
        zero: the certificate expired that many days ago."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        made = _about(self._name, subject, key.public_key(), days)
        made = made.add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        made = made.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        certificate, secret = str(self._directory / f"{file}.pem"), str(self._directory / f"{file}.key")
        _write(certificate, made.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        _write(
            secret,
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
        )
        return TlsFiles(self.ca, certificate, secret)


def serial_of(path: str) -> int:
    """Return the serial number, which differs for each certificate that was made."""
    return x509.load_pem_x509_certificate(Path(path).read_bytes()).serial_number


def end_of(path: str) -> float:
    """Return the end of the certificate, in Unix seconds."""
    return x509.load_pem_x509_certificate(Path(path).read_bytes()).not_valid_after_utc.timestamp()


def _about(issuer: x509.Name, subject: x509.Name, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=60))
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write(path: str, content: bytes) -> None:
    """Replace the whole file at once, as an operator should when replacing a certificate."""
    made = f"{path}.new"
    descriptor = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    Path(made).replace(path)
