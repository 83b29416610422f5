"""Records, conditions and operations: the values of the etcd client's interface."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Record:
    """One key as it was at some revision. ``lease`` 0: bound to none."""

    key: str
    value: bytes
    mod_revision: int
    create_revision: int
    lease: int


@dataclass(frozen=True, slots=True)
class RecordSnapshot:
    """All records under a prefix at ``revision``, in key order: nothing changed in between."""

    records: tuple[Record, ...]
    revision: int


@dataclass(frozen=True, slots=True)
class KeyIs:
    """Holds while ``key`` has not been written since it was read at ``mod_revision``."""

    key: str
    mod_revision: int


@dataclass(frozen=True, slots=True)
class KeyAbsent:
    key: str


@dataclass(frozen=True, slots=True)
class KeyPresent:
    key: str


Condition = KeyIs | KeyAbsent | KeyPresent


@dataclass(frozen=True, slots=True)
class Put:
    """``lease`` is the id of a :class:`shardmerge.proto.etcd.lease.Lease`; 0: the record is permanent."""

    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    key: str


@dataclass(frozen=True, slots=True)
class DeletePrefix:
    """Deletes every key that begins with ``prefix``; end it with "/" to name a folder."""

    prefix: str


Operation = Put | Delete | DeletePrefix


@dataclass(frozen=True, slots=True)
class TxnResult:
    """``ok``: the conditions held and all operations were applied, as one change of ``revision``."""

    ok: bool
    revision: int


def range_end(prefix: str) -> bytes:
    """The first key after all keys with this prefix (etcd API manual, "Key-Value API: Range").

    >>> range_end("ab")
    b'ac'
    """
    key = prefix.encode()
    return key[:-1] + bytes([key[-1] + 1])  # UTF-8 never ends with 0xff
