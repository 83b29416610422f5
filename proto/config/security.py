"""TLS keys of a source or target: PEM files of the workers' machines, or their content in the file itself.

Source: TiDB DM, pkg/config/security (``Security.LoadTLSContent``): content wins over a file, ``*-bytes`` over
``*-base64``. DM writes ``*-bytes`` as a list of numbers; it is taken as a text too.
"""

from __future__ import annotations

from typing import Annotated, cast

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from proto import config_pb2 as pb
from proto.config.finding import ConfigFinding, KeyPath, dotted
from proto.config.key import Key
from proto.config.model import FileModel
from proto.config.yamlfile import Document
from proto.pem import PEM, pem_of
from proto.secret import is_encrypted, kept

_PARTS = ("ca", "cert", "key")
CONTENTS = tuple(f"ssl-{part}-{form}" for part in _PARTS for form in ("bytes", "base64"))
"""Keys that hold what a file would; stored encrypted, as a password is."""


def _of_numbers(value: object) -> object:
    """A list of bytes as the text that they are."""
    if not isinstance(value, list):
        return value
    numbers = [str(number) for number in cast("list[object]", value)]
    if not all(number.isascii() and number.isdecimal() and len(number) < 4 and int(number) < 256 for number in numbers):
        raise ValueError("must be PEM text, or a list of its bytes as numbers")
    return bytes(int(number) for number in numbers).decode("latin1")


def _bytes(text: str) -> str:
    if text and not is_encrypted(text) and PEM not in text:
        raise ValueError(f"must be PEM text: it begins with {PEM.strip()}")
    return text


def _base64(text: str) -> str:
    if text and not is_encrypted(text):
        try:
            pem_of(text)
        except ValueError:
            raise ValueError("must be base64 of PEM text") from None
    return text


_NUMBERS = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 255}}
PemBytes = Annotated[
    str,
    BeforeValidator(_of_numbers),
    AfterValidator(_bytes),
    WithJsonSchema({"anyOf": [{"type": "string"}, _NUMBERS]}),
]
PemBase64 = Annotated[str, AfterValidator(_base64)]


class Security(FileModel):
    """DM's TLS keys: PEM files on the machines of the workers, or the certificates themselves, which win over files.

    Contents of certificates and keys are stored encrypted with the source or the task, like a password. They may be the
    output of `dmctl encrypt`."""

    ssl_ca: Annotated[str, Key("The server's certificate must come from this file.")] = ""
    ssl_cert: Annotated[str, Key("This side's certificate.")] = ""
    ssl_key: Annotated[str, Key("Its key.")] = Field(default="", repr=False)
    cert_allowed_cn: Annotated[tuple[str, ...], Key("Common names that the server's certificate may have.")] = ()
    allow_public_key_retrieval: Annotated[
        bool,
        Key(
            "Our own, JDBC's name: if MySQL requests the password itself (caching_sha2_password after a restart of the "
            "server, sha256_password) and its certificate was not verified, encrypt the password with the public key "
            "that the server sends. Any program that answers at that address can then read the password: prefer ssl-ca."
        ),
    ] = False
    ssl_ca_bytes: Annotated[PemBytes, Key("What ssl-ca would hold, as text or as a list of its bytes.")] = Field(
        default="", repr=False
    )
    ssl_cert_bytes: Annotated[PemBytes, Key("The same of ssl-cert.")] = Field(default="", repr=False)
    ssl_key_bytes: Annotated[PemBytes, Key("The same of ssl-key.")] = Field(default="", repr=False)
    ssl_ca_base64: Annotated[PemBase64, Key("What ssl-ca would hold, in base64.")] = Field(default="", repr=False)
    ssl_cert_base64: Annotated[PemBase64, Key("The same of ssl-cert.")] = Field(default="", repr=False)
    ssl_key_base64: Annotated[PemBase64, Key("The same of ssl-key.")] = Field(default="", repr=False)

    def content(self, part: str) -> str:
        """What the file itself holds of "ca", "cert" or "key": PEM, base64 of it, or that encrypted."""
        return str(getattr(self, f"ssl_{part}_bytes") or getattr(self, f"ssl_{part}_base64"))

    def given(self, part: str) -> bool:
        return bool(self.content(part) or getattr(self, f"ssl_{part}"))

    def to_proto(self, *, stored: bool) -> pb.Tls:
        """``stored``: encrypt the content when this process can."""
        ca, cert, key = (self.content(part) for part in _PARTS)
        return pb.Tls(
            ca="" if ca else self.ssl_ca,
            cert="" if cert else self.ssl_cert,
            key="" if key else self.ssl_key,
            allowed_cn=self.cert_allowed_cn,
            ca_content=kept(ca) if stored else ca,
            cert_content=kept(cert) if stored else cert,
            key_content=kept(key) if stored else key,
        )


def check_security(document: Document, path: KeyPath, security: Security) -> list[ConfigFinding]:
    """A certificate without its key, and a key without its certificate."""
    if security.given("cert") == security.given("key"):
        return []
    missing, given = ("ssl-key", "ssl-cert") if security.given("cert") else ("ssl-cert", "ssl-key")
    forms = (f"{given}-bytes", f"{given}-base64", given)
    held = next((form for form in forms if document.holds((*path, form))), given)
    return [document.finding((*path, held), f"{held} without {missing}: give both", at_key=True)]


def security_notes(document: Document, path: KeyPath, security: Security) -> tuple[str, ...]:
    """A note for every file that is not read, as its content is given."""
    return tuple(
        f"line {document.line((*path, f'ssl-{part}'))}: {dotted((*path, f'ssl-{part}'))}: no effect: its content is "
        "given beside it"
        for part in _PARTS
        if security.content(part) and getattr(security, f"ssl_{part}")
    )
