"""The address and login of a database in a file: ``target-database`` of a task, ``from`` of a source."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Annotated

from pydantic import Field

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto.config.document.file_model import FileModel, NameText, Port
from shardmerge.proto.config.document.masking import MASK
from shardmerge.proto.config.document.yaml_file import Document
from shardmerge.proto.config.finding import ConfigFinding, KeyPath, dotted
from shardmerge.proto.config.key import Key
from shardmerge.proto.config.rules.reserved_names import PINNED_VARIABLES
from shardmerge.proto.config.secrets.endpoint_secrets import PASSWORD, bound_to, sealed
from shardmerge.proto.config.secrets.variables import is_allowed, prefixes, resolve, variable_name
from shardmerge.proto.config.security import CONTENTS, Security, check_security, of_key, security_notes
from shardmerge.proto.errors import config
from shardmerge.proto.networks import of_process
from shardmerge.proto.secret import Bound, dm_content, has_key, is_encrypted, problem


class PasswordForm(enum.Enum):
    """The form of a password in a file; the value is its name in messages."""

    NONE = "not given"
    PLAIN = "plain text"
    REFERENCE = "a reference to a variable"
    ENCRYPTED = "encrypted text"
    MASKED = "the mark of a masked one"


class Database(FileModel):
    """One MySQL-protocol server and its login."""

    host: Annotated[NameText, Key("Name or address of the server.", sample="127.0.0.1")]
    port: Annotated[Port, Key("Its port.", sample="3306")]
    user: Annotated[NameText, Key("User of the login.", sample="dm")]
    password: Annotated[
        str,
        Key(
            "The password, a reference `${NAME}` to a variable of dm-master's environment whose name begins with one "
            "of its env-prefixes, or the output of `dmctl encrypt`.",
            sample='"${DM_PASSWORD}"',
        ),
    ] = Field(default="", repr=False)
    max_allowed_packet: Annotated[
        int | None, Key("Deprecated in DM.", effect="no effect: packets are as large as the server accepts")
    ] = None
    session: Annotated[
        dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$")], str],
        Key(
            "Session variables set on every connection, by the server's names. sql_mode, time_zone and others "
            "that copied values depend on are set by the program: a note reports them."
        ),
    ] = Field(default_factory=dict[str, str])
    security: Annotated[
        Security | None, Key("TLS; without this block connections are encrypted if the server offers it.")
    ] = None

    def to_proto(self, environ: Mapping[str, str] | None) -> pb.Endpoint:
        """The endpoint as it is stored: a reference in ``password`` resolved from ``environ`` (None: left as it is),
        and encrypted when this process has a key."""
        endpoint = pb.Endpoint(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password if environ is None else resolve(self.password, environ),
            session=self.session,
            tls=None if self.security is None else self.security.to_proto(),
            allow_public_key_retrieval=self.security is not None and self.security.allow_public_key_retrieval,
        )
        return endpoint if environ is None else sealed(endpoint)


def check_database(
    document: Document, path: KeyPath, database: Database, environ: Mapping[str, str] | None
) -> list[ConfigFinding]:
    """Findings that need more than the model: TLS keys, encrypted secrets, references to variables."""
    findings: list[ConfigFinding] = []
    endpoint = database.to_proto(None)
    if database.security is not None:
        findings += check_security(document, (*path, "security"), database.security)
        for key in CONTENTS:
            value = str(getattr(database.security, key.replace("-", "_")))
            findings += _secret(document, (*path, "security", key), value, bound_to(endpoint, of_key(key)), environ)
    findings += _secret(document, (*path, "password"), database.password, bound_to(endpoint, PASSWORD), environ)
    if environ is None:
        return findings
    return [
        *findings,
        *_variable(document, (*path, "password"), database.password, environ),
        *_host(document, path, database),
    ]


def _variable(document: Document, path: KeyPath, text: str, environ: Mapping[str, str]) -> Iterator[ConfigFinding]:
    name = variable_name(text)
    if name is not None and not is_allowed(name):
        # The message does not reveal whether the variable is set.
        begins = ", ".join(prefixes()) or "(none)"
        message = f"files may not name the variable {name}: dm-master's env-prefixes are {begins}"
        yield document.finding(path, message, spec=config.VARIABLE_NOT_ALLOWED)
    elif name is not None and name not in environ:
        yield document.finding(path, f"environment variable {name} is not set", spec=config.SECRET_MISSING)


def _host(document: Document, path: KeyPath, database: Database) -> Iterator[ConfigFinding]:
    allowed = of_process()
    if allowed is not None and allowed.refuse_host(database.host):
        message = f"{database.host} is not among the allowed-networks of dm-master: {allowed.text}"
        yield document.finding((*path, "host"), message, spec=config.HOST_NOT_ALLOWED)


def _secret(
    document: Document, path: KeyPath, text: str, bound: Bound, environ: Mapping[str, str] | None
) -> list[ConfigFinding]:
    """Check that an encrypted password can be read with this process's key; without ``environ`` and key: its form."""
    value = text if environ is None else resolve(text, environ)
    found = problem(value, bound, form_only=environ is None)
    return [] if found is None else [document.finding(path, str(found), spec=found.spec)]


def database_notes(document: Document, path: KeyPath, database: Database) -> tuple[str, ...]:
    """Notes for session variables that the program sets, for a password that DM may have encrypted (a plain one can
    look the same), for a variable that masters refuse by default, and for certificate files that are not read."""
    notes = () if database.security is None else security_notes(document, (*path, "security"), database.security)
    pinned = [(*path, "session", name) for name in database.session if name.lower() in PINNED_VARIABLES]
    note = "no effect: the program itself sets what copied values depend on"
    notes = (*(f"line {document.line(here)}: {dotted(here)}: {note}" for here in pinned), *notes)
    here = (*path, "password")
    name = variable_name(database.password)
    if name is not None and not is_allowed(name):
        begins = ", ".join(prefixes()) or "(none)"
        reason = f"the env-prefixes of dm-master must contain a prefix of {name}; on this machine they are {begins}"
        return (*notes, f"line {document.line(here)}: {dotted(here)}: {reason}")
    if has_key() or dm_content(database.password) is None:
        return notes
    note = "used as it is; if DM's `dmctl encrypt` made it, set secret-key-path to DM's key file"
    return (f"line {document.line(here)}: {dotted(here)}: {note}", *notes)


def password_form(text: str) -> PasswordForm:
    """The form of this password."""
    if not text:
        return PasswordForm.NONE
    if text == MASK:
        return PasswordForm.MASKED
    if variable_name(text) is not None:
        return PasswordForm.REFERENCE
    return PasswordForm.ENCRYPTED if is_encrypted(text) or (has_key() and dm_content(text)) else PasswordForm.PLAIN
