"""How to reach a server, and whether it is a source or the target."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto import relay_pb2
from shardmerge.proto.config.secrets.endpoint_secrets import in_plain


class Side(enum.Enum):
    """Whether a server is a source or the target."""

    SOURCE = 1
    TARGET = 2


@dataclass(frozen=True, slots=True)
class Peer:
    """The server of a session. ``name``: the source's id, or "target"."""

    endpoint: Endpoint
    side: Side
    name: str


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files of the worker's machine, or their content as text; "" for none; see worker/core/mysql/tls.py."""

    ca: str = ""
    cert: str = ""
    key: str = ""
    allowed_cn: tuple[str, ...] = ()
    ca_content: str = field(default="", repr=False)
    cert_content: str = field(default="", repr=False)
    key_content: str = field(default="", repr=False)


PLAIN = Tls()
"""No TLS keys are configured."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How to reach one server; ``session``: variables of the configuration, set after connecting.

    ``retrieves_key``: instead of clear text the client may send the password encrypted with a public key that the
    server itself sends. Any program that answers at the address can then read it. ``strict_collations``: at this
    target no table or column gets another collation than at the source.
    """

    host: str
    port: int
    user: str
    password: str = field(default="", repr=False)
    session: tuple[tuple[str, str], ...] = ()
    tls: Tls = PLAIN
    retrieves_key: bool = False
    strict_collations: bool = False

    @staticmethod
    def from_proto(message: pb.Endpoint) -> Endpoint:
        """With its secrets in plain text. Raises ``config.SECRET_KEY_MISSING``, ``SECRET_UNREADABLE``,
        ``SECRET_OF_ANOTHER_SERVER``."""
        message = in_plain(message)
        tls = message.tls
        return Endpoint(
            message.host,
            message.port,
            message.user,
            message.password,
            tuple(sorted(message.session.items())),
            Tls(
                tls.ca,
                tls.cert,
                tls.key,
                tuple(tls.allowed_cn),
                tls.ca_content,
                tls.cert_content,
                tls.key_content,
            ),
            message.allow_public_key_retrieval,
            message.strict_collations,
        )

    def secrets(self) -> relay_pb2.EndpointSecrets:
        """The secrets that :meth:`without_secrets` removes."""
        return relay_pb2.EndpointSecrets(password=self.password, tls_key=self.tls.key_content)

    def without_secrets(self) -> Endpoint:
        """The endpoint without its password and its client key, so that it may be pickled."""
        return self.with_secrets(relay_pb2.EndpointSecrets())

    def with_secrets(self, secrets: relay_pb2.EndpointSecrets) -> Endpoint:
        """The endpoint with these secrets in place of its own."""
        return replace(self, password=secrets.password, tls=replace(self.tls, key_content=secrets.tls_key))

    def __repr__(self) -> str:
        """Without the password: messages contain endpoints."""
        return f"Endpoint({self.user}@{self.host}:{self.port})"
