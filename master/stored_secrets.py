"""Once per leadership, encrypt and bind stored secrets that are in plain text, bound to no server, or under an older
key.

Earlier versions stored them in the first two forms. Each record is changed in its own transaction, on condition that
its revision is unchanged. Workers compare the decrypted secrets, so that no task restarts.
"""

from __future__ import annotations

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


def earlier_version(state: State) -> tuple[str, ...]:
    """Live workers and masters of an earlier version: they cannot read secrets that are bound to a server. Pure."""
    members = (*state.workers.items(), *state.masters.items())
    return tuple(sorted(name for name, entry in members if secret.READS_BOUND not in entry.value.settings))


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
            waiting = earlier_version(state)
            if waiting:
                self._log_earlier_version(waiting)
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

    def _log_earlier_version(self, members: tuple[str, ...]) -> None:
        if time.monotonic() - self._last_logged >= _LOG_SECONDS:
            self._last_logged = time.monotonic()
            get_logger().warning(
                "passwords in etcd stay as they are until these workers and masters are upgraded",
                members=", ".join(members),
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
