"""The error catalogue: one module per class, one constant per error, stable codes.

An error is raised by calling its constant with the message's placeholders::

    raise errors.relay.ACCESS_DENIED(source="mysql-01", user="dm", host="10.0.0.5", port=3306)

Retry decisions ask ``error.spec.retryable`` or the code, never the text.
"""

from shardmerge.proto.errors import (
    check,
    check_data,
    check_room,
    compare,
    config,
    ctl,
    ddl,
    decode,
    master,
    read,
    relay,
    replicate,
    snapshot,
    tls,
    worker,
)
from shardmerge.proto.errors.spec import CATALOGUE, ErrorSpec, Level, Scope, ShardmergeError

__all__ = [
    "CATALOGUE",
    "ErrorSpec",
    "Level",
    "Scope",
    "ShardmergeError",
    "check",
    "check_data",
    "check_room",
    "compare",
    "config",
    "ctl",
    "ddl",
    "decode",
    "master",
    "read",
    "relay",
    "replicate",
    "snapshot",
    "tls",
    "worker",
]
