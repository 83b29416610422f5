"""Encrypts all secrets of a stored source or subtask, or decrypts them all for a comparison.

Two records with the same secrets have the same meaning, in whatever form the secrets are stored: an earlier version
stored plain text, and a key may have been replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from shardmerge.proto import config_pb2 as pb
from shardmerge.proto.config.secrets import endpoint_secrets
from shardmerge.proto.config.secrets.endpoint_secrets import bound_to, with_secrets
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.secret import UnreadableSecret, to_stored

Stored = TypeVar("Stored", pb.SourceConfig, pb.SubTaskConfig)


def sealed(config: Stored) -> Stored:
    """``config`` with every secret encrypted by this process's key; a secret that cannot be read stays as it is. Does
    not change ``config``."""

    def seal(endpoint: pb.Endpoint) -> pb.Endpoint:
        def sealed_or_kept(what: str, text: str) -> str:
            try:
                return to_stored(text, bound_to(endpoint, what))
            except UnreadableSecret:
                return text

        return with_secrets(endpoint, sealed_or_kept)

    return _with_endpoint(config, seal)


def in_plain(config: Stored) -> Stored:
    """``config`` with every secret in plain text. Raises ``config.SECRET_KEY_MISSING``, ``SECRET_UNREADABLE``,
    ``SECRET_OF_ANOTHER_SERVER``."""
    return _with_endpoint(config, endpoint_secrets.in_plain)


def same_meaning(one: Stored, other: Stored) -> bool:
    """Whether they differ at most in the form of their secrets. Raises what :func:`in_plain` raises."""
    if one == other:
        return True
    if sealed_alike(one) != sealed_alike(other):
        return False
    return in_plain(one) == in_plain(other)


def sealed_alike(config: Stored) -> Stored:
    """``config`` without its secrets: equal for two that differ only in secrets."""
    return _with_endpoint(config, lambda endpoint: with_secrets(endpoint, lambda _, text: "x" if text else ""))


def as_comparable(config: Stored) -> Stored:
    """:func:`in_plain`, or ``config`` itself where a secret cannot be read."""
    try:
        return in_plain(config)
    except ShardmergeError:
        return config


def _with_endpoint(config: Stored, change: Callable[[pb.Endpoint], pb.Endpoint]) -> Stored:
    made = type(config)()
    made.CopyFrom(config)
    if made.HasField("from" if isinstance(made, pb.SourceConfig) else "target"):
        endpoint: pb.Endpoint = getattr(made, "from") if isinstance(made, pb.SourceConfig) else made.target
        endpoint.CopyFrom(change(endpoint))
    return made
