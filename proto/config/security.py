"""TLS keys of a source or target: PEM files of the workers' machines, or their content in the file itself.

Source: TiDB DM, pkg/config/security (``Security.LoadTLSContent``): content wins over a file, ``*-bytes`` over
``*-base64``. DM writes ``*-bytes`` as a list of numbers; a text is accepted too.
"""

from __future__ import annotations

from typing import Annotated, cast

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto.config.document.file_model import FileModel
from shardmerge.proto.config.document.yaml_file import Document
from shardmerge.proto.config.finding import ConfigFinding, KeyPath, dotted
from shardmerge.proto.config.key import Key
from shardmerge.proto.pem import PEM, pem_of
from shardmerge.proto.secret import is_encrypted

_PARTS = ("ca", "cert", "key")
CONTENTS = tuple(f"ssl-{part}-{form}" for part in _PARTS for form in ("bytes", "base64"))
"""Keys that hold a file's content; they are stored encrypted, like a password."""


def _of_numbers(value: object) -> object:
    """The text of a list of bytes."""
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
    """DM's TLS keys: PEM files on the machines of the workers, or their content, which wins over files.

    Contents of certificates and keys are stored encrypted with the source or the task, like a password. They may be the
    output of `dmctl encrypt`."""

    ssl_ca: Annotated[
        str,
        Key(
            "The server's certificate must come from this file. The host name in it is not compared: where the "
            "authority serves others too, give cert-allowed-cn."
        ),
    ] = ""
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
    ssl_ca_bytes: Annotated[PemBytes, Key("The content of ssl-ca, as text or as a list of its bytes.")] = Field(
        default="", repr=False
    )
    ssl_cert_bytes: Annotated[PemBytes, Key("The same for ssl-cert.")] = Field(default="", repr=False)
    ssl_key_bytes: Annotated[PemBytes, Key("The same for ssl-key.")] = Field(default="", repr=False)
    ssl_ca_base64: Annotated[PemBase64, Key("The content of ssl-ca, in base64.")] = Field(default="", repr=False)
    ssl_cert_base64: Annotated[PemBase64, Key("The same for ssl-cert.")] = Field(default="", repr=False)
    ssl_key_base64: Annotated[PemBase64, Key("The same for ssl-key.")] = Field(default="", repr=False)

    def content(self, part: str) -> str:
        """The content of "ca", "cert" or "key" in the file itself: PEM, base64 of it, or either encrypted."""
        return str(getattr(self, f"ssl_{part}_bytes") or getattr(self, f"ssl_{part}_base64"))

    def is_set(self, part: str) -> bool:
        return bool(self.content(part) or getattr(self, f"ssl_{part}"))

    def to_proto(self) -> pb.Tls:
        """With the contents as they are in the file."""
        ca, cert, key = (self.content(part) for part in _PARTS)
        return pb.Tls(
            ca="" if ca else self.ssl_ca,
            cert="" if cert else self.ssl_cert,
            key="" if key else self.ssl_key,
            allowed_cn=self.cert_allowed_cn,
            ca_content=ca,
            cert_content=cert,
            key_content=key,
        )


def of_key(key: str) -> str:
    """What a secret's key in a file holds: "password", "ssl-ca", "ssl-cert" or "ssl-key"."""
    return key.removesuffix("-bytes").removesuffix("-base64")


def check_security(document: Document, path: KeyPath, security: Security) -> list[ConfigFinding]:
    """Findings for a certificate without its key, or a key without its certificate."""
    if security.is_set("cert") == security.is_set("key"):
        return []
    missing, present = ("ssl-key", "ssl-cert") if security.is_set("cert") else ("ssl-cert", "ssl-key")
    forms = (f"{present}-bytes", f"{present}-base64", present)
    held = next((form for form in forms if document.holds((*path, form))), present)
    return [document.finding((*path, held), f"{held} without {missing}: give both", at_key=True)]


def security_notes(document: Document, path: KeyPath, security: Security) -> tuple[str, ...]:
    """A note for every file that is not read because its content is configured."""
    return tuple(
        f"line {document.line((*path, f'ssl-{part}'))}: {dotted((*path, f'ssl-{part}'))}: no effect: its content is "
        "configured too"
        for part in _PARTS
        if security.content(part) and getattr(security, f"ssl_{part}")
    )
