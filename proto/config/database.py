"""How a file says where a database is: ``target-database`` of a task, ``from`` of a source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Annotated

from pydantic import Field

from proto import config_pb2 as pb
from proto.config.finding import ConfigFinding, KeyPath, dotted
from proto.config.key import Key
from proto.config.model import FileModel, NameText, Port
from proto.config.yamlfile import Document, Tree, compose
from proto.errors import config
from proto.secret import has_key, kept, problem

_OF_DM = re.compile(r"(?=.*[+/=])(?:[A-Za-z0-9+/]{4}){5,}(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
"""What DM's own `dmctl encrypt` makes: base64 of 16 random bytes and more. A password may look so, too."""
_BEFORE = re.compile(r"(?:[&!]\S*\s+)*")
"""Anchor and tag of a value."""
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


_FILES = "certificates are read from files of the worker's machine: ssl-ca, ssl-cert, ssl-key"


class Security(FileModel):
    """DM's TLS keys: PEM files on the machines of the workers.

    Certificates inside of a file (``*-bytes``, ``*-base64``) are refused: leaving TLS out silently would send rows in
    clear text.
    """

    ssl_ca: Annotated[str, Key("The server's certificate must come from this file.")] = ""
    ssl_cert: Annotated[str, Key("This side's certificate.")] = ""
    ssl_key: Annotated[str, Key("Its key.")] = Field(default="", repr=False)
    cert_allowed_cn: Annotated[tuple[str, ...], Key("Common names that the server's certificate may have.")] = ()
    ssl_ca_bytes: Annotated[str, Key("The certificate itself.", refused=_FILES)] = Field(default="", repr=False)
    ssl_cert_bytes: Annotated[str, Key("The certificate itself.", refused=_FILES)] = Field(default="", repr=False)
    ssl_key_bytes: Annotated[str, Key("The key itself.", refused=_FILES)] = Field(default="", repr=False)
    ssl_ca_base64: Annotated[str, Key("The certificate itself.", refused=_FILES)] = Field(default="", repr=False)
    ssl_cert_base64: Annotated[str, Key("The certificate itself.", refused=_FILES)] = Field(default="", repr=False)
    ssl_key_base64: Annotated[str, Key("The key itself.", refused=_FILES)] = Field(default="", repr=False)

    def to_proto(self) -> pb.Tls:
        return pb.Tls(ca=self.ssl_ca, cert=self.ssl_cert, key=self.ssl_key, allowed_cn=self.cert_allowed_cn)


class Database(FileModel):
    """One MySQL-protocol server and who logs in."""

    host: Annotated[NameText, Key("Name or address of the server.", sample="127.0.0.1")]
    port: Annotated[Port, Key("Its port.", sample="3306")]
    user: Annotated[NameText, Key("Who logs in.", sample="dm")]
    password: Annotated[
        str,
        Key(
            "The password, a reference `${NAME}` to a variable of dm-master's environment, or what `dmctl encrypt` "
            "made of it.",
            sample='"${DM_PASSWORD}"',
        ),
    ] = Field(default="", repr=False)
    max_allowed_packet: Annotated[
        int | None, Key("Deprecated in DM.", here="no effect: packets are as large as the server takes")
    ] = None
    session: Annotated[
        dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$")], str],
        Key("Variables set on every connection, by the names that the server knows."),
    ] = Field(default_factory=dict[str, str])
    security: Annotated[Security | None, Key("TLS; without it encrypted where the server offers it.")] = None

    def to_proto(self, environ: Mapping[str, str] | None) -> pb.Endpoint:
        """The endpoint as it is stored: a reference in ``password`` resolved from ``environ`` (None: left as it is),
        and encrypted when this process has a key."""
        return pb.Endpoint(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password if environ is None else kept(_resolve(self.password, environ)),
            session=self.session,
            tls=None if self.security is None else self.security.to_proto(),
        )


def check_database(
    document: Document, path: KeyPath, database: Database, environ: Mapping[str, str] | None
) -> list[ConfigFinding]:
    """Findings that need more than the model: TLS keys, and references to variables that are not set."""
    findings: list[ConfigFinding] = []
    security = database.security
    if security is not None and bool(security.ssl_cert) != bool(security.ssl_key):
        missing, given = ("ssl-key", "ssl-cert") if security.ssl_cert else ("ssl-cert", "ssl-key")
        findings.append(
            document.finding((*path, "security", given), f"{given} without {missing}: give both", at_key=True)
        )
    findings += _secret(document, (*path, "password"), database.password, environ)
    reference = _REFERENCE.fullmatch(database.password)
    if reference and environ is not None and reference.group(1) not in environ:
        findings.append(
            document.finding(
                (*path, "password"),
                f"environment variable {reference.group(1)} is not set",
                spec=config.SECRET_MISSING,
            )
        )
    return findings


def _secret(document: Document, path: KeyPath, text: str, environ: Mapping[str, str] | None) -> list[ConfigFinding]:
    """Whether an encrypted password can be read, by this process's key; without ``environ`` and key: its form."""
    value = text if environ is None else _resolve(text, environ)
    found = problem(value, form_only=environ is None)
    return [] if found is None else [document.finding(path, str(found), spec=found.spec)]


def password_notes(document: Document, path: KeyPath, database: Database) -> tuple[str, ...]:
    """A note for a password that DM may have encrypted: it cannot be told from one that only looks so."""
    if not _OF_DM.fullmatch(database.password):
        return ()
    here = (*path, "password")
    said = "taken as it stands; if DM's `dmctl encrypt` made it, write the password itself or encrypt it anew"
    return (f"line {document.line(here)}: {dotted(here)}: {said}",)


def kept_text(document: Document, text: str, path: KeyPath) -> str:
    """A file's text as it is stored: its password at ``path`` encrypted when this process has a key.

    Raises ``config.INVALID`` for a password written so oddly that another cannot stand in its place.
    """
    text = text.removeprefix("\ufeff")
    here = (*path, "password")
    span = document.spans.get(here)
    value = _at(document.root, here)
    if span is None or not has_key() or not value or _REFERENCE.fullmatch(value):
        return text
    sealed, written = kept(value), text[span[0] : span[1]]
    before = _BEFORE.match(written)
    end = written[len(written.rstrip()) :]
    stored = f'{text[: span[0]]}{before[0] if before else ""}"{sealed}"{end}{text[span[1] :]}'
    expected = deepcopy(document.root)
    _set(expected, here, sealed)
    read, _ = compose(stored, document.file)
    if read is None or read.root != expected:
        message = "cannot be encrypted where it stands: write it in quotes, in a line of its own, without an alias"
        raise config.INVALID(finding=document.finding(here, message), more="")
    return stored


def _set(root: dict[str, Tree], path: KeyPath, value: str) -> None:
    for part in path[:-1]:
        inner = root[str(part)]
        assert isinstance(inner, dict)  # noqa: S101 - the path was read from this tree
        root = inner
    root[str(path[-1])] = value


def _at(root: Tree, path: KeyPath) -> str:
    for part in path:
        root = root.get(str(part)) if isinstance(root, dict) else None
    return root if isinstance(root, str) else ""


def _resolve(text: str, environ: Mapping[str, str]) -> str:
    reference = _REFERENCE.fullmatch(text)
    return environ.get(reference.group(1), text) if reference else text
