"""How a file says where a database is: ``target-database`` of a task, ``from`` of a source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from proto import config_pb2 as pb
from proto.config.finding import ConfigFinding, KeyPath
from proto.config.model import FileModel, NameText, Port, kebab
from proto.config.yamlfile import Document
from proto.errors import config

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Security(FileModel):
    """DM's TLS keys. ``ssl_*``: PEM files on the machines of the workers.

    Certificates inside of a file (``*_bytes``, ``*_base64``) parse, and are refused: leaving TLS out silently would
    send rows in clear text.
    """

    ssl_ca: str = ""
    ssl_cert: str = ""
    ssl_key: str = Field(default="", repr=False)
    cert_allowed_cn: tuple[str, ...] = ()
    ssl_ca_bytes: str = Field(default="", repr=False)
    ssl_cert_bytes: str = Field(default="", repr=False)
    ssl_key_bytes: str = Field(default="", repr=False)
    ssl_ca_base64: str = Field(default="", repr=False)
    ssl_cert_base64: str = Field(default="", repr=False)
    ssl_key_base64: str = Field(default="", repr=False)

    def to_proto(self) -> pb.Tls:
        return pb.Tls(ca=self.ssl_ca, cert=self.ssl_cert, key=self.ssl_key, allowed_cn=self.cert_allowed_cn)


class Database(FileModel):
    """One MySQL-protocol server and who logs in.

    ``password`` may be a reference ``${NAME}`` to an environment variable of the process that resolves
    it. ``session``: variables set on every connection, names as the server knows them.
    """

    host: NameText
    port: Port
    user: NameText
    password: str = Field(default="", repr=False)
    max_allowed_packet: int | None = None
    session: dict[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$")], str] = Field(
        default_factory=dict[str, str]
    )
    security: Security | None = None

    def to_proto(self, environ: Mapping[str, str] | None) -> pb.Endpoint:
        """The endpoint, with a reference in ``password`` resolved from ``environ`` (None: left as it is)."""
        return pb.Endpoint(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password if environ is None else _resolve(self.password, environ),
            session=self.session,
            tls=None if self.security is None else self.security.to_proto(),
        )


def check_database(
    document: Document, path: KeyPath, database: Database, environ: Mapping[str, str] | None
) -> list[ConfigFinding]:
    """Findings that need more than the model: TLS keys, and references to variables that are not set."""
    findings: list[ConfigFinding] = []
    security = database.security
    if security is not None:
        for name, value in security:
            if name.endswith(("_bytes", "_base64")) and value:
                findings.append(
                    document.finding(
                        (*path, "security", kebab(name)),
                        "certificates are read from files of the worker's machine: ssl-ca, ssl-cert, ssl-key",
                        at_key=True,
                        spec=config.NOT_SUPPORTED,
                    )
                )
        if bool(security.ssl_cert) != bool(security.ssl_key):
            missing, given = ("ssl-key", "ssl-cert") if security.ssl_cert else ("ssl-cert", "ssl-key")
            findings.append(
                document.finding((*path, "security", given), f"{given} without {missing}: give both", at_key=True)
            )
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


def _resolve(text: str, environ: Mapping[str, str]) -> str:
    reference = _REFERENCE.fullmatch(text)
    return environ.get(reference.group(1), text) if reference else text
