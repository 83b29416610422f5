"""The secrets of what is stored of a source or a subtask: all encrypted, or all in plain text to be compared.

Two records whose secrets are the same mean the same, whatever form the secrets have there: an earlier version stored
plain text, and a key may have been replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from proto import config_pb2 as pb
from proto.errors import ShardmergeError
from proto.secret import Unreadable, kept, revealed

Stored = TypeVar("Stored", pb.SourceConfig, pb.SubTaskConfig)


def sealed(config: Stored) -> Stored:
    """``config`` with every secret encrypted by this process's key; what cannot be read stays as it is. Never changes
    ``config``."""

    def seal(text: str) -> str:
        try:
            return kept(text)
        except Unreadable:
            return text

    return _with_secrets(config, seal)


def in_plain(config: Stored) -> Stored:
    """``config`` with every secret in plain text. Raises ``config.SECRET_KEY_MISSING``, ``SECRET_UNREADABLE``."""
    return _with_secrets(config, lambda text: revealed(text, where_of(config)))


def same_meaning(one: Stored, other: Stored) -> bool:
    """Whether they differ at most in the form of their secrets. Raises what :func:`in_plain` raises."""
    if one == other:
        return True
    if sealed_alike(one) != sealed_alike(other):
        return False
    return in_plain(one) == in_plain(other)


def sealed_alike(config: Stored) -> Stored:
    """``config`` without its secrets: equal for two that differ in nothing else."""
    return _with_secrets(config, lambda text: "x" if text else "")


def as_comparable(config: Stored) -> Stored:
    """:func:`in_plain`, or ``config`` itself where a secret cannot be read."""
    try:
        return _with_secrets(config, lambda text: revealed(text, ""))
    except ShardmergeError:
        return config


def where_of(config: pb.SourceConfig | pb.SubTaskConfig) -> str:
    """The secret's place for errors."""
    endpoint = _endpoint(config)
    return f"the password of {endpoint.user}@{endpoint.host}:{endpoint.port}"


def _with_secrets(config: Stored, change: Callable[[str], str]) -> Stored:
    made = type(config)()
    made.CopyFrom(config)
    if made.HasField("from" if isinstance(made, pb.SourceConfig) else "target"):
        endpoint = _endpoint(made)
        endpoint.password = change(endpoint.password)
        if endpoint.HasField("tls"):
            tls = endpoint.tls
            tls.ca_content, tls.cert_content = change(tls.ca_content), change(tls.cert_content)
            tls.key_content = change(tls.key_content)
    return made


def _endpoint(config: pb.SourceConfig | pb.SubTaskConfig) -> pb.Endpoint:
    return getattr(config, "from") if isinstance(config, pb.SourceConfig) else config.target
