"""How to reach a server, and which end of the way of a row it is on."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from proto import config_pb2 as pb


class Side(enum.Enum):
    """Which end of the way of a row a server is on."""

    SOURCE = 1
    TARGET = 2


@dataclass(frozen=True, slots=True)
class Tls:
    """Files of the worker's machine, PEM, "" for none; see worker/tls.py."""

    ca: str = ""
    cert: str = ""
    key: str = ""
    allowed_cn: tuple[str, ...] = ()


PLAIN = Tls()
"""No TLS keys were given."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How to reach one server; ``session``: variables of the configuration, set after connecting."""

    host: str
    port: int
    user: str
    password: str = ""
    session: tuple[tuple[str, str], ...] = ()
    tls: Tls = PLAIN

    @staticmethod
    def from_proto(message: pb.Endpoint) -> Endpoint:
        tls = message.tls
        return Endpoint(
            message.host,
            message.port,
            message.user,
            message.password,
            tuple(sorted(message.session.items())),
            Tls(tls.ca, tls.cert, tls.key, tuple(tls.allowed_cn)),
        )

    def __repr__(self) -> str:
        """Without the password: endpoints end up in messages."""
        return f"Endpoint({self.user}@{self.host}:{self.port})"
