"""etcd: the only place where the masters' decisions live."""

from proto.etcd.client import Etcd
from proto.etcd.lease import Lease
from proto.etcd.types import (
    Condition,
    Delete,
    DeletePrefix,
    KeyAbsent,
    KeyIs,
    KeyPresent,
    Operation,
    Put,
    Record,
    Snapshot,
    TxnResult,
)
from proto.etcd.watch import Stop

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
    "Snapshot",
    "Stop",
    "TxnResult",
]
