"""Encrypts all secrets of a stored source or subtask, or decrypts them all for a comparison.

Two records with the same secrets have the same meaning, in whatever form the secrets are stored: an earlier version
stored plain text, and a key may have been replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.secret import Unreadable, to_plain, to_stored

Stored = TypeVar("Stored", pb.SourceConfig, pb.SubTaskConfig)


def sealed(config: Stored) -> Stored:
    """``config`` with every secret encrypted by this process's key; a secret that cannot be read stays as it is. Does
    not change ``config``."""

    def seal(text: str) -> str:
        try:
            return to_stored(text)
        except Unreadable:
            return text

    return _with_secrets(config, seal)


def in_plain(config: Stored) -> Stored:
    """``config`` with every secret in plain text. Raises ``config.SECRET_KEY_MISSING``, ``SECRET_UNREADABLE``."""
    return _with_secrets(config, lambda text: to_plain(text, where_of(config)))


def same_meaning(one: Stored, other: Stored) -> bool:
    """Whether they differ at most in the form of their secrets. Raises what :func:`in_plain` raises."""
    if one == other:
        return True
    if sealed_alike(one) != sealed_alike(other):
        return False
    return in_plain(one) == in_plain(other)


def sealed_alike(config: Stored) -> Stored:
    """``config`` without its secrets: equal for two that differ only in secrets."""
    return _with_secrets(config, lambda text: "x" if text else "")


def as_comparable(config: Stored) -> Stored:
    """:func:`in_plain`, or ``config`` itself where a secret cannot be read."""
    try:
        return _with_secrets(config, lambda text: to_plain(text, ""))
    except ShardmergeError:
        return config


def where_of(config: pb.SourceConfig | pb.SubTaskConfig) -> str:
    """The name of the secret in errors."""
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
