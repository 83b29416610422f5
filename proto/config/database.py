"""How a file says where a database is: ``target-database`` of a task, ``from`` of a source."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Annotated

from pydantic import Field

from proto import config_pb2 as pb
from proto.config.finding import ConfigFinding, KeyPath, dotted
from proto.config.key import Key
from proto.config.masking import MASK
from proto.config.model import FileModel, NameText, Port
from proto.config.names import PINNED_VARIABLES
from proto.config.security import CONTENTS, Security, check_security, security_notes
from proto.config.variables import is_allowed, named, prefixes, resolved
from proto.config.yamlfile import Document, Tree, compose
from proto.errors import config
from proto.networks import of_process
from proto.secret import Unreadable, has_key, is_encrypted, kept, of_dm, problem

_BEFORE = re.compile(r"(?:[&!]\S*\s+)*")
"""Anchor and tag of a value."""
_SECRETS: tuple[KeyPath, ...] = (("password",), *(("security", key) for key in CONTENTS))


class PasswordForm(enum.Enum):
    """How a file gives a password; the value is its name in messages."""

    NONE = "not given"
    PLAIN = "plain text"
    REFERENCE = "a reference to a variable"
    ENCRYPTED = "encrypted text"
    MASKED = "the mark of a masked one"


class Database(FileModel):
    """One MySQL-protocol server and who logs in."""

    host: Annotated[NameText, Key("Name or address of the server.", sample="127.0.0.1")]
    port: Annotated[Port, Key("Its port.", sample="3306")]
    user: Annotated[NameText, Key("Who logs in.", sample="dm")]
    password: Annotated[
        str,
        Key(
            "The password, a reference `${NAME}` to a variable of dm-master's environment whose name begins with one "
            "of its env-prefixes, or the output of `dmctl encrypt`.",
            sample='"${DM_PASSWORD}"',
        ),
    ] = Field(default="", repr=False)
    max_allowed_packet: Annotated[
        int | None, Key("Deprecated in DM.", here="no effect: packets are as large as the server takes")
    ] = None
    session: Annotated[
        dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$")], str],
        Key(
            "Variables set on every connection, by the names that the server knows. sql_mode, time_zone and others "
            "that copied values depend on are the program's: a note says so."
        ),
    ] = Field(default_factory=dict[str, str])
    security: Annotated[Security | None, Key("TLS; without it encrypted where the server offers it.")] = None

    def to_proto(self, environ: Mapping[str, str] | None) -> pb.Endpoint:
        """The endpoint as it is stored: a reference in ``password`` resolved from ``environ`` (None: left as it is),
        and encrypted when this process has a key."""
        return pb.Endpoint(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password if environ is None else kept(resolved(self.password, environ)),
            session=self.session,
            tls=None if self.security is None else self.security.to_proto(stored=environ is not None),
            allow_public_key_retrieval=self.security is not None and self.security.allow_public_key_retrieval,
        )


def check_database(
    document: Document, path: KeyPath, database: Database, environ: Mapping[str, str] | None
) -> list[ConfigFinding]:
    """Findings that need more than the model: TLS keys, encrypted secrets, references to variables."""
    findings: list[ConfigFinding] = []
    if database.security is not None:
        findings += check_security(document, (*path, "security"), database.security)
        for key in CONTENTS:
            value = str(getattr(database.security, key.replace("-", "_")))
            findings += _secret(document, (*path, "security", key), value, environ)
    findings += _secret(document, (*path, "password"), database.password, environ)
    if environ is None:
        return findings
    return [
        *findings,
        *_variable(document, (*path, "password"), database.password, environ),
        *_host(document, path, database),
    ]


def _variable(document: Document, path: KeyPath, text: str, environ: Mapping[str, str]) -> Iterator[ConfigFinding]:
    name = named(text)
    if name is not None and not is_allowed(name):
        # The message does not reveal whether the variable is set.
        begins = ", ".join(prefixes()) or "(none)"
        message = f"{name} is no variable that files may name: dm-master's env-prefixes are {begins}"
        yield document.finding(path, message, spec=config.VARIABLE_NOT_ALLOWED)
    elif name is not None and name not in environ:
        yield document.finding(path, f"environment variable {name} is not set", spec=config.SECRET_MISSING)


def _host(document: Document, path: KeyPath, database: Database) -> Iterator[ConfigFinding]:
    allowed = of_process()
    if allowed is not None and allowed.refuse_host(database.host):
        message = f"{database.host} is not among the allowed-networks of dm-master: {allowed.text}"
        yield document.finding((*path, "host"), message, spec=config.HOST_NOT_ALLOWED)


def _secret(document: Document, path: KeyPath, text: str, environ: Mapping[str, str] | None) -> list[ConfigFinding]:
    """Whether an encrypted password can be read, by this process's key; without ``environ`` and key: its form."""
    value = text if environ is None else resolved(text, environ)
    found = problem(value, form_only=environ is None)
    return [] if found is None else [document.finding(path, str(found), spec=found.spec)]


def database_notes(document: Document, path: KeyPath, database: Database) -> tuple[str, ...]:
    """Notes for session variables that are the program's, for a password that DM may have encrypted (a plain one
    can look the same), for a variable that masters refuse by default, and for certificate files that are not read."""
    notes = () if database.security is None else security_notes(document, (*path, "security"), database.security)
    pinned = [(*path, "session", name) for name in database.session if name.lower() in PINNED_VARIABLES]
    said = "no effect: what copied values depend on is set by the program itself"
    notes = (*(f"line {document.line(here)}: {dotted(here)}: {said}" for here in pinned), *notes)
    here = (*path, "password")
    name = named(database.password)
    if name is not None and not is_allowed(name):
        begins = ", ".join(prefixes()) or "(none)"
        reason = f"the env-prefixes of dm-master must contain a prefix of {name}; on this machine they are {begins}"
        return (*notes, f"line {document.line(here)}: {dotted(here)}: {reason}")
    if has_key() or of_dm(database.password) is None:
        return notes
    said = "taken as it stands; if DM's `dmctl encrypt` made it, give DM's key file as secret-key-path"
    return (f"line {document.line(here)}: {dotted(here)}: {said}", *notes)


def kept_text(document: Document, text: str, path: KeyPath) -> str:
    """A file's text as it is stored: the secrets of the database at ``path`` encrypted when this process has a key.

    Raises ``config.INVALID`` for a secret written so oddly that another text cannot stand in its place.
    """
    stored = text = text.removeprefix("\ufeff")
    if not has_key():
        return text
    expected = deepcopy(document.root)
    found = [here for here in (((*path, *key)) for key in _SECRETS) if _is_plain(document, here)]
    for here in sorted(found, key=lambda one: document.spans.get(one, (0, 0)), reverse=True):
        value, span = _at(document.root, here), document.spans.get(here)
        if not isinstance(value, str) or span is None:
            message = "cannot be encrypted where it stands: write it as one text"
            raise config.INVALID(finding=document.finding(here, message), more="")
        try:
            sealed, written = kept(value), text[span[0] : span[1]]
        except Unreadable as why:
            raise why.spec(finding=document.finding(here, str(why)), more="") from None
        before = _BEFORE.match(written)
        end = written[len(written.rstrip()) :]
        stored = f'{stored[: span[0]]}{before[0] if before else ""}"{sealed}"{end}{stored[span[1] :]}'
        _set(expected, here, sealed)
    read, _ = compose(stored, document.file)
    if read is None or read.root != expected:
        message = "cannot be encrypted where it stands: write it in quotes, in a line of its own, without an alias"
        raise config.INVALID(finding=document.finding(found[0], message), more="")
    return stored


def _is_plain(document: Document, path: KeyPath) -> bool:
    """Whether a secret is given there, and not only named."""
    value = _at(document.root, path)
    return bool(value) and not (isinstance(value, str) and named(value) is not None)


def _set(root: dict[str, Tree], path: KeyPath, value: str) -> None:
    for part in path[:-1]:
        inner = root[str(part)]
        assert isinstance(inner, dict)  # noqa: S101 - the path was read from this tree
        root = inner
    root[str(path[-1])] = value


def _at(root: Tree, path: KeyPath) -> Tree:
    for part in path:
        root = root.get(str(part)) if isinstance(root, dict) else None
    return root


def password_form(text: str) -> PasswordForm:
    """How a file gives this password."""
    if not text:
        return PasswordForm.NONE
    if text == MASK:
        return PasswordForm.MASKED
    if named(text) is not None:
        return PasswordForm.REFERENCE
    return PasswordForm.ENCRYPTED if is_encrypted(text) or (has_key() and of_dm(text)) else PasswordForm.PLAIN
