"""The secrets of an endpoint: bound to its account, its address and its TLS policy, when they are stored.

Who can write to etcd could otherwise copy a stored password into the record of another server, or remove the TLS
authority of its own record, and a worker would send the password there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto.secret import Binding, Bound, read_secret, to_plain, to_stored

PASSWORD = "password"  # noqa: S105 - the name of a key
CA, CERT, KEY = "ssl-ca", "ssl-cert", "ssl-key"
_CONTENTS = {CA: "ca_content", CERT: "cert_content", KEY: "key_content"}


def bound_to(endpoint: pb.Endpoint, what: str) -> Bound:
    """The binding of one of the endpoint's secrets."""
    return partial(_binding, endpoint, what)


def opened(endpoint: pb.Endpoint, what: str) -> str:
    """A secret in plain text. Raises ``config.SECRET_KEY_MISSING``, ``SECRET_UNREADABLE``,
    ``SECRET_OF_ANOTHER_SERVER``."""
    text = endpoint.password if what == PASSWORD else str(getattr(endpoint.tls, _CONTENTS[what]))
    name = "the password" if what == PASSWORD else what
    return to_plain(text, f"{name} of {endpoint.user}@{endpoint.host}:{endpoint.port}", bound_to(endpoint, what))


def sealed(endpoint: pb.Endpoint) -> pb.Endpoint:
    """The endpoint as it is stored. Raises :class:`shardmerge.proto.secret.UnreadableSecret`."""
    return with_secrets(endpoint, lambda what, text: to_stored(text, bound_to(endpoint, what)))


def in_plain(endpoint: pb.Endpoint) -> pb.Endpoint:
    """The endpoint with every secret in plain text. Raises what :func:`opened` raises."""
    return with_secrets(endpoint, lambda what, _: opened(endpoint, what))


def with_secrets(endpoint: pb.Endpoint, change: Callable[[str, str], str]) -> pb.Endpoint:
    """A copy whose secrets are ``change(what, text)``."""
    made = pb.Endpoint()
    made.CopyFrom(endpoint)
    made.password = change(PASSWORD, endpoint.password)
    if endpoint.HasField("tls"):
        for what, name in _CONTENTS.items():
            setattr(made.tls, name, change(what, str(getattr(endpoint.tls, name))))
    return made


def _binding(endpoint: pb.Endpoint, what: str) -> Binding:
    """All of the TLS policy decides who receives a password: so the authority itself is part of it, but not of its own
    binding. The session's variables are not: they reach only a server that has the login already. A further part may
    be added only where it has not its default value: otherwise nothing that is stored could be opened."""
    tls = endpoint.tls
    authority = ""
    if what != CA and tls.ca_content:
        authority = hashlib.sha256(read_secret(tls.ca_content, bound_to(endpoint, CA)).encode()).hexdigest()
    fixed = (endpoint.user, endpoint.host, str(endpoint.port), str(endpoint.HasField("tls")))
    policy = (str(endpoint.allow_public_key_retrieval), tls.ca, tls.cert, tls.key, authority)
    return Binding(what, (*fixed, *policy, *sorted(set(tls.allowed_cn))))
