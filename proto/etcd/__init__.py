"""etcd, which holds all decisions of the masters.

client reads, writes and watches records (types) over one connection per endpoint; lease keeps leases alive, watch
follows a prefix. api and stubs provide etcd's messages.
"""

from shardmerge.proto.etcd.client import Etcd
from shardmerge.proto.etcd.lease import Lease
from shardmerge.proto.etcd.types import (
    Condition,
    Delete,
    DeletePrefix,
    KeyAbsent,
    KeyIs,
    KeyPresent,
    Operation,
    Put,
    Record,
    RecordSnapshot,
    TxnResult,
)

__all__ = [
    "Condition",
    "Delete",
    "DeletePrefix",
    "Etcd",
    "KeyAbsent",
    "KeyIs",
    "KeyPresent",
    "Lease",
    "Operation",
    "Put",
    "Record",
    "RecordSnapshot",
    "TxnResult",
]
