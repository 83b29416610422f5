"""What is stored, by one key or another: what it means, and which records are to be written anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from shardmerge.master.commands.cluster.members import is_insecure
from shardmerge.master.state import State, VersionedRecord, parse
from shardmerge.master.stored_secrets import earlier_version, to_seal
from shardmerge.proto import config_pb2, errors, etcd_keys, secret
from shardmerge.proto import state_pb2 as pb
from shardmerge.proto.config.daemon.daemon_file import parse_master, parse_worker, shown
from shardmerge.proto.config.secrets.endpoint_secrets import bound_to, opened, with_secrets
from shardmerge.proto.config.secrets.sealed import in_plain, same_meaning, sealed
from shardmerge.proto.config.stored_text import OF_TASK, plain_text, sealed_text
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.etcd import Record, RecordSnapshot
from shardmerge.worker.core.mysql.endpoint import Endpoint

FILE = "name: t\ntarget-database:\n  host: h\n  port: 1\n  user: u\n  password: {} # kept\n"
HERE = config_pb2.Endpoint(host="h", port=1, user="u")


def _bound(key: secret.SecretKey, plain: str, endpoint: config_pb2.Endpoint = HERE, what: str = "password") -> str:
    return key.seal(plain, bound_to(endpoint, what)())


@pytest.fixture
def key(tmp_path: Path) -> Iterator[secret.SecretKey]:
    path = str(tmp_path / "key")
    assert secret.make_key(path) and not secret.make_key(path)
    secret.use(path)
    yield secret.load_key(path)
    secret.use("")


def _subtask(password: str, key_content: str = "") -> config_pb2.SubTaskConfig:
    target = config_pb2.Endpoint(host="h", port=1, user="u", password=password)
    if key_content:
        target.tls.key_content = key_content
    return config_pb2.SubTaskConfig(task="t", source_id="s", target=target)


AT = "host: h, port: 1, user: u"


def _state(password: str, settings: str = "") -> State:
    source = config_pb2.SourceConfig(source_id="s")
    getattr(source, "from").CopyFrom(_subtask(password).target)
    records = {
        etcd_keys.source("s"): pb.SourceRecord(
            config=source, yaml=f'source-id: s\nfrom: {{{AT}, password: "{password}"}}\n'
        ),
        etcd_keys.task("t"): pb.TaskRecord(name="t", yaml=FILE.format(f'"{password}"')),
        etcd_keys.subtask("t", "s"): pb.SubTaskRecord(config=_subtask(password)),
        etcd_keys.worker("w"): pb.WorkerRecord(name="w", settings=settings),
    }
    return parse(RecordSnapshot(tuple(Record(at, etcd_keys.encode(one), 7, 7, 0) for at, one in records.items()), 7))


def test_the_form_of_a_secret_means_nothing(key: secret.SecretKey) -> None:
    plain = _subtask("p", "k")
    assert sealed(plain).target.password == _bound(key, "p", plain.target)
    assert sealed(plain).target.tls.key_content == _bound(key, "k", plain.target, "ssl-key")
    assert sealed(_subtask(key.encrypt("p"), key.encrypt("k"))) == sealed(plain), "an earlier version's form"
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
    assert stored == FILE.format(f'"{_bound(key, password)}"')
    assert sealed_text(stored, OF_TASK) == stored == sealed_text(FILE.format(key.encrypt(password)), OF_TASK)
    assert plain_text(stored, OF_TASK, "t") == FILE.format(written)
    elsewhere = stored.replace("host: h", "host: other")
    assert sealed_text(elsewhere, OF_TASK) == elsewhere
    with pytest.raises(ShardmergeError, match="stored for another account, address or TLS setting"):
        plain_text(elsewhere, OF_TASK, "t")


def test_a_stored_file_that_is_no_longer_valid(key: secret.SecretKey) -> None:
    file = FILE.format('"p"').replace("port: 1", "port: x")
    stored = sealed_text(file, OF_TASK)
    assert plain_text(stored, OF_TASK, "t") == file
    assert _bound(key, "p", config_pb2.Endpoint()) in stored


def test_records_that_are_written_anew(key: secret.SecretKey) -> None:
    found = {one.key: one.value for one in to_seal(_state("Geheim"))}
    assert set(found) == {etcd_keys.source("s"), etcd_keys.task("t"), etcd_keys.subtask("t", "s")}
    assert not [one for one in found.values() if "Geheim" in str(one)]
    assert {one.key for one in to_seal(_state(key.encrypt("Geheim")))} == set(found), "they are bound"
    assert [*to_seal(_state(_bound(key, "Geheim")))] == []
    assert etcd_keys.subtask("t", "s") in {one.key for one in to_seal(_state("${NAME}"))}, "as resolved it is a secret"
    # Another key encrypts now.
    secret.add_key(key.path)
    assert [*to_seal(_state(_bound(key, "Geheim")))] == []
    secret.rotate_keys(key.path)
    assert len([*to_seal(_state(_bound(key, "Geheim")))]) == 3


def test_members_of_an_earlier_version_are_waited_for() -> None:
    assert earlier_version(_state("p", "name: w\nlog-level: info\n")) == ("w",)
    assert earlier_version(_state("p", shown(parse_worker("", "w", {})))) == ()
    state = _state("p", shown(parse_worker("", "w", {})))
    masters = {
        "m": VersionedRecord(pb.MasterRecord(settings="name: m\n"), 7),
        "n": VersionedRecord(pb.MasterRecord(settings=_MASTER), 7),
    }
    assert earlier_version(replace(state, masters=masters)) == ("m",)


_MASTER = shown(parse_master("", "m", {}))


def _with_tls() -> config_pb2.Endpoint:
    endpoint = config_pb2.Endpoint(host="h", port=1, user="u", password="p")
    endpoint.tls.MergeFrom(config_pb2.Tls(ca_content="A", cert="c", key_content="K", allowed_cn=["x", "y"]))
    return endpoint


def _other_ca(endpoint: config_pb2.Endpoint) -> None:
    """The authority of another server, as it is stored for this account."""
    endpoint.tls.ca_content = secret.to_stored("B", bound_to(endpoint, "ssl-ca"))


def _no_tls(endpoint: config_pb2.Endpoint) -> None:
    endpoint.ClearField("tls")


CHANGES: dict[str, Callable[[config_pb2.Endpoint], object]] = {
    "user": lambda one: setattr(one, "user", "v"),
    "host": lambda one: setattr(one, "host", "i"),
    "port": lambda one: setattr(one, "port", 2),
    "public key": lambda one: setattr(one, "allow_public_key_retrieval", True),
    "authority in plain text": lambda one: setattr(one.tls, "ca_content", "B"),
    "authority": _other_ca,
    "no authority": lambda one: setattr(one.tls, "ca_content", ""),
    "file of the authority": lambda one: one.tls.MergeFrom(config_pb2.Tls(ca="/tmp/ca")),
    "certificate": lambda one: setattr(one.tls, "cert", "d"),
    "key": lambda one: setattr(one.tls, "key", "/k"),
    "name": lambda one: one.tls.allowed_cn.append("z"),
    "no names": lambda one: one.tls.ClearField("allowed_cn"),
    "no tls": _no_tls,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_a_copied_secret_opens_for_no_other_server(
    key: secret.SecretKey, change: Callable[[config_pb2.Endpoint], object]
) -> None:
    """What a program with access to etcd can do: keep the texts, and change everything else of a record."""
    forged = sealed(config_pb2.SubTaskConfig(target=_with_tls())).target
    assert (opened(forged, "password"), opened(forged, "ssl-key"), opened(forged, "ssl-ca")) == ("p", "K", "A")
    change(forged)
    for what in ("password", "ssl-key") if forged.HasField("tls") else ("password",):
        with pytest.raises(ShardmergeError, match="stored for another account, address or TLS setting") as caught:
            opened(forged, what)
        assert caught.value.spec is errors.config.SECRET_OF_ANOTHER_SERVER
    kept = config_pb2.SubTaskConfig(target=forged)
    assert sealed(kept).target.password == forged.password, "the leader binds it to no other server"
    with pytest.raises(ShardmergeError):
        Endpoint.from_proto(forged)


def test_what_decides_nothing_may_change(key: secret.SecretKey) -> None:
    stored = sealed(config_pb2.SubTaskConfig(target=_with_tls())).target
    stored.session["max_statement_time"] = "1"
    stored.strict_collations = True
    stored.tls.allowed_cn[:] = ["y", "x", "x"]
    assert opened(stored, "password") == "p"


def test_a_secret_is_no_other_secret(key: secret.SecretKey) -> None:
    """The password of an account is not sent as its certificate, which the server sees in plain text."""
    stored = sealed(config_pb2.SubTaskConfig(target=_with_tls())).target
    stored.tls.cert_content = stored.tls.key_content
    with pytest.raises(ShardmergeError, match="ssl-cert of u@h:1: cannot be decrypted"):
        opened(stored, "ssl-cert")
    assert with_secrets(stored, lambda what, _: what).tls.key_content == "ssl-key"


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("", False),
        ("{insecure: false, name: 'insecure: true'}", False),
        ("insecure: true", True),
        ("{insecure: true, master-addr: ':1', ssl-ca: a, ssl-cert: b, ssl-key: c}", True),
    ],
)
def test_a_daemon_is_known_as_insecure_by_its_settings(text: str, answer: bool) -> None:
    assert is_insecure(shown(parse_master(text, "m", {}))) == answer
