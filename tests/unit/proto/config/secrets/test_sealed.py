"""What is stored, by one key or another: what it means, and which records are to be written anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmerge.master.commands.cluster.members import is_open
from shardmerge.master.state import State, parse
from shardmerge.master.stored_secrets import to_seal, without_key
from shardmerge.proto import config_pb2, errors, etcd_keys, secret
from shardmerge.proto import state_pb2 as pb
from shardmerge.proto.config.daemon.daemon_file import parse_master, shown
from shardmerge.proto.config.secrets.sealed import in_plain, same_meaning, sealed
from shardmerge.proto.config.stored_text import OF_TASK, plain_text, sealed_text
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd import Record, Snapshot

FILE = "name: t\ntarget-database:\n  password: {} # kept\n"


@pytest.fixture
def key(tmp_path: Path) -> Iterator[secret.SecretKey]:
    path = str(tmp_path / "key")
    assert secret.make_key(path) and not secret.make_key(path)
    secret.use(path)
    yield secret.load_key(path)
    secret.use("")


def _subtask(password: str, key_content: str = "") -> config_pb2.SubTaskConfig:
    target = config_pb2.Endpoint(host="h", password=password)
    if key_content:
        target.tls.key_content = key_content
    return config_pb2.SubTaskConfig(task="t", source_id="s", target=target)


def _state(password: str, settings: str = "") -> State:
    source = config_pb2.SourceConfig(source_id="s")
    getattr(source, "from").password = password
    records = {
        etcd_keys.source("s"): pb.SourceRecord(config=source, yaml=f'source-id: s\nfrom: {{password: "{password}"}}\n'),
        etcd_keys.task("t"): pb.TaskRecord(name="t", yaml=FILE.format(f'"{password}"')),
        etcd_keys.subtask("t", "s"): pb.SubTaskRecord(config=_subtask(password)),
        etcd_keys.worker("w"): pb.WorkerRecord(name="w", settings=settings),
    }
    return parse(Snapshot(tuple(Record(at, etcd_keys.encode(one), 7, 7, 0) for at, one in records.items()), 7))


def test_the_form_of_a_secret_means_nothing(key: secret.SecretKey) -> None:
    plain = _subtask("p", "k")
    assert sealed(plain).target.password == key.encrypt("p")
    assert sealed(plain).target.tls.key_content == key.encrypt("k")
    assert in_plain(sealed(plain)) == plain and sealed(sealed(plain)) == sealed(plain)
    assert same_meaning(plain, sealed(plain))
    assert not same_meaning(plain, sealed(_subtask("q", "k")))
    other = sealed(plain)
    other.target.host = "elsewhere"
    assert not same_meaning(plain, other)


def test_what_cannot_be_read_is_no_other_secret(key: secret.SecretKey, tmp_path: Path) -> None:
    theirs = sealed(_subtask("p"))
    secret.make_key(str(tmp_path / "other"))
    secret.use(str(tmp_path / "other"))
    with pytest.raises(ShardmergeError) as caught:
        same_meaning(_subtask("p"), theirs)
    assert caught.value.spec is errors.config.SECRET_UNREADABLE
    assert sealed(theirs) == theirs, "it stays as it is"


@pytest.mark.parametrize("password", ["p", "it's", 'a"b\\c', "tab\there", "ünï \U0001f600", "null", "0x1F"])
def test_texts_there_and_back(key: secret.SecretKey, password: str) -> None:
    written = '"' + password.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\x09") + '"'
    stored = sealed_text(FILE.format(written), OF_TASK)
    assert stored == FILE.format(f'"{key.encrypt(password)}"')
    assert sealed_text(stored, OF_TASK) == stored
    assert plain_text(stored, "t") == FILE.format(written)


def test_records_that_are_written_anew(key: secret.SecretKey) -> None:
    found = {one.key: one.value for one in to_seal(_state("Geheim"))}
    assert set(found) == {etcd_keys.source("s"), etcd_keys.task("t"), etcd_keys.subtask("t", "s")}
    assert not [one for one in found.values() if "Geheim" in str(one)]
    assert [*to_seal(_state(key.encrypt("Geheim")))] == []
    assert etcd_keys.subtask("t", "s") in {one.key for one in to_seal(_state("${NAME}"))}, "as resolved it is a secret"
    # Another key encrypts now.
    secret.add_key(key.path)
    assert [*to_seal(_state(key.encrypt("Geheim")))] == []
    secret.rotate_keys(key.path)
    assert len([*to_seal(_state(key.encrypt("Geheim")))]) == 3


def test_workers_of_an_earlier_version_are_waited_for() -> None:
    earlier = "name: w\nsecret-key-path: ''\nlog-level: info\n"
    assert without_key(_state("p", earlier)) == ("w",)
    assert without_key(_state("p", earlier.replace("''", "'******'"))) == ()
    assert without_key(_state("p", shown(parse_master("", "m", {})))) == ()


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", False),
        ("insecure: true", False),
        ("{insecure: true, master-addr: ':1'}", True),
        ("{insecure: true, advertise-addr: 'h:1'}", True),
        ("{insecure: true, master-addr: ':1', ssl-ca: a, ssl-cert: b, ssl-key: c}", False),
    ],
)
def test_what_is_open_is_known_by_its_settings(text: str, answer: bool) -> None:
    told = parse_master(text, "m", {})
    assert is_open(shown(told)) == answer
    assert told.is_open == answer
