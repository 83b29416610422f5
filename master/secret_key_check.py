"""Check that this master's key is the key that encrypts the cluster's passwords. The first master creates the key."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from shardmerge.master.state import State, parse
from shardmerge.proto import config_pb2 as config
from shardmerge.proto import errors, etcd_keys, secret
from shardmerge.proto import state_pb2 as pb
from shardmerge.proto.config.finding import KeyPath
from shardmerge.proto.config.secrets.key_file import KeyFile
from shardmerge.proto.config.secrets.sealed import in_plain
from shardmerge.proto.config.stored_text import OF_SOURCE, OF_TASK, plain_text
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd import Etcd, KeyAbsent, Put, Record


@dataclass(frozen=True, slots=True)
class KeyCheck:
    """``file`` None: secrets are stored as they are, and nothing is checked."""

    etcd: Etcd
    file: KeyFile | None = None

    def confirm(self) -> None:
        """Compare this master's key with the record; create the key and the record if neither exists.

        Raises SECRET_KEY_DIFFERS, SECRET_KEY_ABSENT, SECRET_KEY_UNUSABLE, BAD_RECORD and ETCD_UNAVAILABLE.
        """
        if self.file is None:
            return
        record = self.etcd.get(etcd_keys.SECRET_KEY)
        if record is None:
            record = self._begun(self.file)
        known = etcd_keys.decode(pb.SecretKeyRecord, record.value, record.key).key_id
        own = secret.key_ids()
        if not own:
            raise errors.master.SECRET_KEY_ABSENT(path=self.file.path)
        if known not in own:
            raise errors.master.SECRET_KEY_DIFFERS(path=self.file.path)

    def _begun(self, file: KeyFile) -> Record:
        """The record: this master's, unless another master wrote it first."""
        state = parse(self.etcd.get_prefix(etcd_keys.PREFIX))
        if not secret.key_ids() and any(True for _ in encrypted(state)):
            # A version without this record had a key.
            raise errors.master.SECRET_KEY_ABSENT(path=file.path)
        if not secret.key_ids() and file.is_default:
            secret.make_key(file.path)
        own = secret.key_ids()
        if not own:
            raise errors.master.SECRET_KEY_ABSENT(path=file.path)
        if not readable(encrypted(state)):
            raise errors.master.SECRET_KEY_DIFFERS(path=file.path)
        value = etcd_keys.encode(pb.SecretKeyRecord(key_id=own[0]))
        self.etcd.txn([KeyAbsent(etcd_keys.SECRET_KEY)], [Put(etcd_keys.SECRET_KEY, value)])
        record = self.etcd.get(etcd_keys.SECRET_KEY)
        if record is None:
            raise errors.master.CONFLICT(what="the record of the key")
        return record


def encrypted(state: State) -> Iterator[config.SourceConfig | config.SubTaskConfig | tuple[str, KeyPath]]:
    """The configurations in ``state`` that hold encrypted secrets, and such files with the path of the database in
    them. Pure."""
    for entry in (*state.sources.values(), *state.subtasks.values()):
        if secret.holds_encrypted(str(entry.value.config)):
            yield entry.value.config
    for entries, path in ((state.sources, OF_SOURCE), (state.tasks, OF_TASK)):
        for entry in entries.values():
            if secret.holds_encrypted(entry.value.yaml):
                yield entry.value.yaml, path


def readable(found: Iterable[config.SourceConfig | config.SubTaskConfig | tuple[str, KeyPath]]) -> bool:
    """Whether this process's key made all of them."""
    for one in found:
        try:
            match one:
                case config.SourceConfig():
                    in_plain(one)
                case config.SubTaskConfig():
                    in_plain(one)
                case text, path:
                    plain_text(text, path, "")
        except ShardmergeError as error:
            if error.spec in (errors.config.SECRET_UNREADABLE, errors.config.SECRET_KEY_MISSING):
                return False
            if error.spec is not errors.config.SECRET_OF_ANOTHER_SERVER:
                raise
    return True
