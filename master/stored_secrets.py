"""Once per leadership, encrypt stored secrets that are in plain text or under an older key with this cluster's key.

An earlier version stored passwords in plain text. Each record is changed in its own transaction, on condition that its
revision is unchanged. Workers compare the decrypted secrets, so that no task restarts.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

from google.protobuf.message import Message

from shardmerge.master.state import State
from shardmerge.master.store import Leadership, Store
from shardmerge.proto import errors, etcd_keys, secret
from shardmerge.proto import state_pb2 as pb
from shardmerge.proto.config.secrets.sealed import sealed
from shardmerge.proto.config.stored_text import OF_SOURCE, OF_TASK, sealed_text
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd import Condition
from shardmerge.proto.log import get_logger

_WITHOUT_KEY = re.compile(r"^secret-key-path: ''$", re.MULTILINE)
"""This line is in the settings of a daemon of an earlier version, which has no default key."""
_LOG_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Sealed:
    """A record with encrypted secrets, which replaces the one of ``revision``."""

    key: str
    revision: int
    value: Message


def to_seal(state: State) -> Iterator[Sealed]:
    """The records that hold a secret in another form than the one encrypted by this process's key. Writes nothing."""
    for name, source in state.sources.items():
        yield from _changed(etcd_keys.source(name), source.revision, source.value, _sealed_source(source.value))
    for name, task in state.tasks.items():
        other = pb.TaskRecord()
        other.CopyFrom(task.value)
        other.yaml = sealed_text(task.value.yaml, OF_TASK)
        yield from _changed(etcd_keys.task(name), task.revision, task.value, other)
    for pair, subtask in state.subtasks.items():
        changed = pb.SubTaskRecord()
        changed.CopyFrom(subtask.value)
        changed.config.CopyFrom(sealed(subtask.value.config))
        yield from _changed(etcd_keys.subtask(*pair), subtask.revision, subtask.value, changed)


def without_key(state: State) -> tuple[str, ...]:
    """Live workers of an earlier version without a key: they cannot read encrypted secrets. Pure."""
    return tuple(sorted(name for name, entry in state.workers.items() if _WITHOUT_KEY.search(entry.value.settings)))


class Sealing:
    """Encrypts the records while this master leads; see :class:`shardmerge.master.leader.loop.LeaderLoop`."""

    def __init__(self, store: Store, leadership: Leadership) -> None:
        self._store = store
        self._leadership = leadership
        self._done: tuple[Condition, tuple[str, ...]] | None = None
        self._last_logged = -_LOG_SECONDS

    def reconcile(self) -> None:
        """Work once for each leadership and key; a record that could not be written is tried again."""
        ids = secret.key_ids()
        now = (self._leadership.condition(), ids)
        if not ids or now == self._done:
            return
        with self._store.deciding() as state:
            waiting = without_key(state)
            if waiting:
                self._log_workers_without_key(waiting)
                return
            whole = True
            for one in to_seal(state):
                try:
                    self._store.seal(one.key, one.value, one.revision)
                except ShardmergeError as error:
                    if error.spec is not errors.master.CONFLICT:
                        raise
                    whole = False
                else:
                    get_logger().info("passwords encrypted", record=one.key)
            if whole:
                self._store.note_key(ids)
                self._done = now

    def _log_workers_without_key(self, workers: tuple[str, ...]) -> None:
        if time.monotonic() - self._last_logged >= _LOG_SECONDS:
            self._last_logged = time.monotonic()
            get_logger().warning(
                "passwords in etcd stay as they are until these workers have a key", workers=", ".join(workers)
            )


def _sealed_source(record: pb.SourceRecord) -> pb.SourceRecord:
    made = pb.SourceRecord()
    made.CopyFrom(record)
    made.config.CopyFrom(sealed(record.config))
    made.yaml = sealed_text(record.yaml, OF_SOURCE)
    return made


def _changed(key: str, revision: int, before: Message, after: Message) -> Iterator[Sealed]:
    if before != after:
        yield Sealed(key, revision, after)
