"""Encrypted passwords: what stands in files and records, and that no output ever holds one."""

from __future__ import annotations

import base64
import io
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.decrepit.ciphers.modes import CFB
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from hypothesis import example, given
from hypothesis import strategies as st

from shardmerge.ctl.main import run
from shardmerge.proto import config_pb2 as pb
from shardmerge.proto import errors, secret
from shardmerge.proto.config.check import check_text
from shardmerge.proto.config.secrets.endpoint_secrets import bound_to
from shardmerge.proto.config.source import parse_source_file
from shardmerge.proto.config.stored_text import OF_SOURCE, OF_TASK, plain_text
from shardmerge.proto.config.task.task_file import parse_task
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.proto.pem import pem_of
from shardmerge.worker.core.mysql.endpoint import Endpoint
from tests.unit.proto.config.samples import SOURCE, TASK

PLAIN = "s3cret-Käse"


@pytest.fixture
def key(tmp_path: Path) -> Iterator[secret.SecretKey]:
    path = str(tmp_path / "key")
    secret.new_key(path)
    yield secret.load_key(path)
    secret.use("")


def bound_at(key: secret.SecretKey, endpoint: pb.Endpoint, plain: str) -> str:
    """A password as it is stored for an endpoint."""
    return key.seal(plain, bound_to(endpoint, "password")())


def of_task(key: secret.SecretKey, plain: str) -> str:
    """A password as it is stored for the target of ``TASK``."""
    return bound_at(key, pb.Endpoint(host="10.0.0.9", port=4000, user="root"), plain)


def of_source(key: secret.SecretKey, plain: str) -> str:
    """A password as it is stored for ``SOURCE``."""
    return bound_at(key, pb.Endpoint(host="10.0.0.5", port=3306, user="dm"), plain)


def refused(spec: ErrorSpec, text: str) -> str:
    with pytest.raises(ShardmergeError) as caught:
        parse_task(text, "task.yaml", {})
    assert caught.value.spec is spec
    assert PLAIN not in str(caught.value) and PLAIN not in repr(caught.value)
    return caught.value.message


def test_there_and_back(key: secret.SecretKey) -> None:
    text = key.encrypt(PLAIN)
    assert text.startswith("enc:v1:")
    assert (key.decrypt(text), key.encrypt(PLAIN)) == (PLAIN, text)
    assert key.encrypt(PLAIN + "x")[7:23] != text[7:23]
    assert PLAIN not in text and str(key.key) not in repr(key)
    assert Path(key.path).stat().st_mode & 0o777 == 0o600


def test_a_change_or_another_key_is_seen(key: secret.SecretKey, tmp_path: Path) -> None:
    text = key.encrypt(PLAIN)
    changed = text[:-5] + ("A" if text[-5] != "A" else "B") + text[-4:]
    for bad in (changed, text[:20], "enc:v1:", "enc:v1:äöü", "enc:v9:" + text[7:]):
        with pytest.raises(secret.UnreadableSecret):
            key.decrypt(bad)
    other = str(tmp_path / "other")
    secret.new_key(other)
    secret.use(other)
    message = refused(errors.config.SECRET_UNREADABLE, TASK.replace('"p: w"', text))
    assert f"task.yaml:7:13: target-database.password: cannot be decrypted: the key in {other} did not" in message


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"", "hexadecimal"), (b"00" * 31, "64 hexadecimal"), (b"\xff" * 64, "hexadecimal"), (None, "No such")],
)
def test_key_files_that_are_none(tmp_path: Path, content: bytes | None, says: str) -> None:
    path = tmp_path / "key"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ShardmergeError) as caught:
        secret.use(str(path))
    assert caught.value.spec is errors.config.SECRET_KEY_UNUSABLE
    assert says in caught.value.message and str(path) in caught.value.message


def test_a_key_file_is_never_written_over(key: secret.SecretKey) -> None:
    with pytest.raises(ShardmergeError, match="it exists already"):
        secret.new_key(key.path)


def test_with_a_key_every_password_is_stored_encrypted(key: secret.SecretKey) -> None:
    sealed = key.encrypt(PLAIN)
    secret.use(key.path)
    for written in (f'"{PLAIN}"', f"'{PLAIN}'", PLAIN, sealed, "${DM_PW}", "${DM_SEALED}"):
        environ = {"DM_PW": PLAIN, "DM_SEALED": sealed}
        file = parse_task(TASK.replace('"p: w"', written), "task.yaml", environ)
        assert {subtask.target.password for subtask in file.to_subtasks()} == {of_task(key, PLAIN)}
        assert PLAIN not in file.text and secret.PREFIX not in file.text and PLAIN not in repr(file)
        again = parse_task(file.text, "task.yaml", environ)
        assert again.to_subtasks() == file.to_subtasks()
        source = parse_source_file(SOURCE.replace("007", written), "s.yaml", environ)
        assert getattr(source.config, "from").password == of_source(key, PLAIN)
        assert PLAIN not in source.text and secret.PREFIX not in source.text and PLAIN not in repr(source)
        assert Endpoint.from_proto(getattr(source.config, "from")).password == PLAIN
    # All but the password stays as it was written.
    assert parse_task(TASK, "f", {}).text == TASK.replace('"p: w"', f'"{of_task(key, "p: w")}"')


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("\ufeff" + TASK.replace("\n", "\r\n"), TASK.replace("\n", "\r\n")),
        ("# ä漢\U0001f600\u2028\n" + TASK, "# ä漢\U0001f600\u2028\n" + TASK),
        (TASK.replace('"p: w"', "&pw 'p: w' # x"), TASK.replace('"p: w"', '&pw "p: w" # x')),
    ],
)
def test_nothing_but_the_password_is_replaced(key: secret.SecretKey, before: str, after: str) -> None:
    secret.use(key.path)
    sealed = of_task(key, "p: w")
    kept = parse_task(before, "task.yaml", {}).text
    assert kept == after.replace('"p: w"', f'"{sealed}"')
    assert parse_task(kept, "task.yaml", {}).to_subtasks()[0].target.password == sealed


STYLES = (
    *("|-\n    p w", ">-\n    p\n    w", "'p w'", "p w", "p\n    w"),
    *('"p\\x20w"', "&a p w", "!!str p w", "&a !!str p w"),
)


@pytest.mark.parametrize("style", STYLES)
def test_every_way_to_write_a_password_is_replaced(key: secret.SecretKey, style: str) -> None:
    secret.use(key.path)
    file = parse_task(TASK.replace('"p: w"', style), "task.yaml", {})
    sealed = of_task(key, "p w")
    assert file.to_subtasks()[0].target.password == sealed
    assert parse_task(file.text, "task.yaml", {}).to_subtasks() == file.to_subtasks()
    assert "p w" not in file.text and "p\n" not in file.text


def test_a_password_that_is_elsewhere_too(key: secret.SecretKey) -> None:
    secret.use(key.path)
    text = TASK.replace('"p: w"', "root")
    assert "user: root\n" in parse_task(text, "task.yaml", {}).text
    shared = text.replace("user: root", "user: &name root").replace("password: root", "password: *name")
    # No other text can stand there: the whole file is encrypted.
    file = parse_task(shared, "task.yaml", {})
    assert file.text == key.seal(shared, secret.Binding("file", ("target-database",)))
    assert plain_text(file.text, OF_TASK, "merge") == shared
    with pytest.raises(ShardmergeError, match="stored for another account, address or TLS setting"):
        plain_text(file.text, OF_SOURCE, "merge")
    assert file.to_subtasks()[0].target.password == of_task(key, "root")


def test_without_a_key_the_file_is_stored_as_it_is() -> None:
    file = parse_task(TASK, "task.yaml", {})
    assert file.text == TASK
    assert file.to_subtasks()[0].target.password == "p: w"


def test_a_process_without_the_key_refuses(key: secret.SecretKey) -> None:
    sealed = key.encrypt(PLAIN)
    message = refused(errors.config.SECRET_KEY_MISSING, TASK.replace('"p: w"', sealed))
    assert "target-database.password: is encrypted, and this process has no secret-key-path" in message
    with pytest.raises(ShardmergeError) as caught:
        Endpoint.from_proto(pb.Endpoint(host="h", port=1, user="u", password=sealed))
    assert caught.value.spec is errors.config.SECRET_KEY_MISSING
    assert "the password of u@h:1" in caught.value.message
    # Without any server only the form can be looked at.
    assert not check_text(TASK.replace('"p: w"', sealed), "t").findings
    [found] = check_text(TASK.replace('"p: w"', sealed[:20]), "t").findings
    assert found.spec is errors.config.SECRET_UNREADABLE


def test_endpoints_hide_it_and_take_it_along(key: secret.SecretKey) -> None:
    secret.use(key.path)
    endpoint = Endpoint.from_proto(pb.Endpoint(host="h", port=1, user="u", password=key.encrypt(PLAIN)))
    secret.use("")  # as in a Spark task's process, which has no key
    assert pickle.loads(pickle.dumps(endpoint)).password == PLAIN
    assert PLAIN not in repr(endpoint) and PLAIN not in f"{endpoint}"


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    # The user who runs the tests may have a key.
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = str(tmp_path / "key")
    assert run(["encrypt", "--new-key", path]) == 0
    assert capsys.readouterr().out == ""
    assert run(["encrypt", PLAIN, "--secret-key-path", path]) == 0
    sealed = capsys.readouterr().out.strip()
    assert secret.load_key(path).decrypt(sealed) == PLAIN
    monkeypatch.setenv("SHARDMERGE_SECRET_KEY", path)
    for typed in (f"{PLAIN}\n", f"{PLAIN}\r\n", PLAIN):
        monkeypatch.setattr("sys.stdin", io.StringIO(typed))
        assert run(["encrypt"]) == 0
        assert capsys.readouterr().out.strip() == sealed
    config = tmp_path / "dmctl.toml"
    config.write_text(f'secret-key-path = "{path}"\n')
    monkeypatch.delenv("SHARDMERGE_SECRET_KEY")
    assert run(["--config", str(config), "encrypt", PLAIN]) == 0
    assert capsys.readouterr().out.strip() == sealed
    assert run(["encrypt", PLAIN]) == 2
    assert run(["encrypt", sealed, "--secret-key-path", path]) == 2
    assert run(["encrypt", "", "--secret-key-path", path]) == 2
    assert run(["encrypt", PLAIN, "--secret-key-path", str(tmp_path)]) == 1
    assert run(["encrypt", "--new-key", path]) == 1
    said = capsys.readouterr()
    assert PLAIN not in said.out + said.err
    file = tmp_path / "task.yaml"
    file.write_text(TASK.replace('"p: w"', f'"{PLAIN}"').replace("port: 4000", "port: x"))
    assert run(["check-config", str(file)]) == 1
    said = capsys.readouterr()
    assert PLAIN not in said.out + said.err


PEM = "-----BEGIN PRIVATE KEY-----\nMIIs3cret\n-----END PRIVATE KEY-----\n"
CERTIFICATE = "  security:\n    ssl-cert: /c\n"
WRITTEN = {
    "ssl-key-bytes": "|\n      " + PEM.replace("\n", "\n      ").rstrip(" "),
    "ssl-key-base64": base64.b64encode(PEM.encode()).decode() + "\n",
}


@pytest.mark.parametrize("name", list(WRITTEN))
def test_the_key_of_a_certificate_is_kept_like_a_password(key: secret.SecretKey, name: str) -> None:
    text = SOURCE.replace(
        "  password: 007\n", f"  password: {PLAIN}\n  security:\n    ssl-cert: /c\n    {name}: {WRITTEN[name]}"
    )
    secret.use("")
    plain = parse_source_file(text, "s.yaml", {})
    secret.use(key.path)
    kept = parse_source_file(text, "s.yaml", {})
    for shown in (kept.text, str(kept.config)):
        assert "MIIs3cret" not in shown and PLAIN not in shown and "TUlJ" not in shown
    again = parse_source_file(kept.text, "s.yaml", {})
    assert (again.config, again.text) == (kept.config, kept.text)
    assert Endpoint.from_proto(getattr(kept.config, "from")) == Endpoint.from_proto(getattr(plain.config, "from"))
    assert pem_of(Endpoint.from_proto(getattr(kept.config, "from")).tls.key_content) == PEM
    secret.use("")
    assert any("is encrypted" in str(found) for found in check_text(kept.text, "s.yaml", environ={}).findings)


def test_a_key_as_a_list_of_bytes_is_not_stored_in_plain_text(key: secret.SecretKey) -> None:
    secret.use(key.path)
    text = SOURCE.replace("  password: 007\n", f"{CERTIFICATE}    ssl-key-bytes: {[*PEM.encode()]}\n")
    file = parse_source_file(text, "s.yaml", {})
    assert file.text == key.seal(text, secret.Binding("file", ("from",)))
    assert plain_text(file.text, OF_SOURCE, "mysql-01") == text
    assert Endpoint.from_proto(getattr(file.config, "from")).tls.key_content == PEM
    assert str([*PEM.encode()])[1:20] not in str(file.config) and "MII" not in str(file.config)


def made_by_dm(key: bytes, plain: str, vector: bytes = bytes(range(16))) -> str:
    """As tiflow's dm/pkg/encrypt does it, by another implementation than ours."""
    stream = Cipher(algorithms.AES256(key), CFB(vector)).encryptor()
    return base64.b64encode(vector + b"@" + stream.update(plain.encode())).decode()


@pytest.mark.parametrize("plain", ["x", "0123456789abcdef", PLAIN * 3, "123456"])
def test_what_dm_encrypted_is_read_by_its_key(key: secret.SecretKey, plain: str) -> None:
    text = TASK.replace('"p: w"', made_by_dm(key.key, plain))
    [note] = [note for note in parse_task(text, "task.yaml", {}).notes if "password" in note]
    assert note.endswith("set secret-key-path to DM's key file")
    secret.use(key.path)
    file = parse_task(text, "task.yaml", {})
    [subtask] = [one for one in file.to_subtasks() if one.source_id == "mysql-01"]
    assert subtask.target.password == of_task(key, plain)
    assert Endpoint.from_proto(subtask.target).password == plain
    assert not [note for note in file.notes if "password" in note]
    assert parse_task(file.text, "task.yaml", {}).to_subtasks() == file.to_subtasks()


def test_what_dm_encrypted_by_another_key_is_refused(key: secret.SecretKey) -> None:
    secret.use(key.path)
    text = made_by_dm(bytes(32), "a longer password")
    assert "no key in" in refused(errors.config.SECRET_UNREADABLE, TASK.replace('"p: w"', text))
    # Of another form: a password.
    other = base64.b64encode(bytes(range(40))).decode()
    [one, _] = parse_task(TASK.replace('"p: w"', other), "task.yaml", {}).to_subtasks()
    assert Endpoint.from_proto(one.target).password == other


def _here() -> secret.Binding:
    return secret.Binding("password", ("u", "h"))


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
BINDINGS = st.builds(secret.Binding, TEXTS, st.lists(TEXTS, max_size=4).map(tuple))


@given(BINDINGS, BINDINGS, TEXTS, TEXTS)
@example(secret.Binding("p", ("a", "b")), secret.Binding("p", ("ab",)), "x", "x")
@example(secret.Binding("p", ("a",)), secret.Binding("p", ("a", "")), "x", "x")
def test_only_the_same_binding_opens(one: secret.Binding, other: secret.Binding, plain: str, text: str) -> None:
    key = secret.SecretKey("key", bytes(range(32)))
    sealed = key.seal(plain, one)
    assert (key.open(sealed, one), key.seal(plain, one)) == (plain, sealed)
    again = key.seal(text, other)
    same = (one, plain) == (other, text)
    # Mark and nonce: one nonce is never used for two texts, or with two bindings.
    assert (again[:33] == sealed[:33]) == same and (one.data == other.data) == (one == other)
    if one != other:
        with pytest.raises(secret.UnreadableSecret, match="for another account, address or TLS setting") as caught:
            key.open(sealed, other)
        assert caught.value.spec is errors.config.SECRET_OF_ANOTHER_SERVER
    older = secret.SecretKey("key", bytes(32), (key.key,))
    assert older.open(sealed, one) == plain
    with pytest.raises(secret.UnreadableSecret, match="the key in key did not make it") as caught:
        secret.SecretKey("key", bytes(32)).open(sealed, one)
    assert caught.value.spec is errors.config.SECRET_UNREADABLE


def test_a_bound_text_that_was_changed_is_refused(key: secret.SecretKey) -> None:
    text = key.seal(PLAIN, _here())
    for at in range(len(secret.BOUND_PREFIX), len(text), 5):
        changed = text[:at] + ("A" if text[at] != "A" else "B") + text[at + 1 :]
        with pytest.raises(secret.UnreadableSecret):
            key.open(changed, _here())
    for cut in (text[:40], secret.BOUND_PREFIX):
        with pytest.raises(secret.UnreadableSecret):
            key.open(cut, _here())
    with pytest.raises(secret.UnreadableSecret):
        key.decrypt(secret.PREFIX + text.removeprefix(secret.BOUND_PREFIX))


@pytest.mark.parametrize("key_name", ["host", "port", "user"])
def test_a_stored_file_for_another_server_is_refused(key: secret.SecretKey, key_name: str) -> None:
    """An operator edits a file that has a stored password in it, instead of the own file."""
    secret.use(key.path)
    kept = parse_task(TASK, "task.yaml", {}).text
    other = {"host": kept.replace("10.0.0.9", "10.0.0.8"), "port": kept.replace("4000", "4001")}
    changed = {**other, "user": kept.replace("user: root", "user: other")}[key_name]
    assert changed != kept
    message = refused(errors.config.SECRET_OF_ANOTHER_SERVER, changed)
    assert "target-database.password: cannot be decrypted: it was stored for another account" in message
    [found] = check_text(changed, "t", environ={}).findings
    assert found.spec is errors.config.SECRET_OF_ANOTHER_SERVER
    # The output of `dmctl encrypt` is bound to no server: the user chooses it.
    assert parse_task(changed.replace(of_task(key, "p: w"), key.encrypt("x")), "task.yaml", {}).to_subtasks()


def test_a_key_is_replaced_while_processes_run(key: secret.SecretKey) -> None:
    """The processes are this one: it reads the file again when it has changed."""
    secret.use(key.path)
    sealed, unbound = secret.to_stored(PLAIN, _here), key.encrypt(PLAIN)
    secret.add_key(key.path)
    assert secret.to_stored(PLAIN, _here) == sealed
    secret.rotate_keys(key.path)
    anew = secret.to_stored(sealed, _here)
    assert anew != sealed and anew == secret.to_stored(unbound, _here)
    assert {secret.to_plain(text, "p", _here) for text in (sealed, anew, unbound)} == {PLAIN}
    assert Path(key.path).stat().st_mode & 0o777 == 0o600
    lines = Path(key.path).read_text().splitlines()
    # What cannot be read leaves the keys that there are.
    Path(key.path).write_text("half of a k")
    assert secret.to_plain(sealed, "p", _here) == PLAIN
    Path(key.path).unlink()
    assert secret.to_plain(sealed, "p", _here) == PLAIN
    Path(key.path).write_text(lines[0] + "\n")
    assert secret.to_plain(anew, "p", _here) == PLAIN
    for gone in (sealed, unbound):
        with pytest.raises(ShardmergeError, match="did not make it"):
            secret.to_plain(gone, "p", _here)


def test_files_are_encrypted_in_place(
    key: secret.SecretKey, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task, source = tmp_path / "task.yaml", tmp_path / "source.yaml"
    task.write_text(TASK.replace('"p: w"', key.encrypt(PLAIN)))
    source.write_text(SOURCE.replace("007", made_by_dm(key.key, PLAIN)))
    for option in ("--add-key", "--turn-keys"):
        assert run(["encrypt", option, key.path]) == 0
    command = ["encrypt", "--secret-key-path", key.path, "--rekey", str(task), "--rekey", str(source)]
    assert run(command) == 0
    sealed = secret.load_key(key.path).encrypt(PLAIN)
    assert task.read_text() == TASK.replace('"p: w"', f'"{sealed}"')
    assert source.read_text() == SOURCE.replace("007", f'"{sealed}"')
    assert sorted(path.name for path in tmp_path.iterdir()) == ["key", "source.yaml", "task.yaml"]
    assert "its secrets are encrypted" in capsys.readouterr().err
    assert run(command) == 0
    assert "nothing to encrypt" in capsys.readouterr().err
    task.write_text(TASK.replace('"p: w"', "enc:v1:" + "A" * 60))
    assert run(command) == 1
    assert "target-database.password: cannot be decrypted" in capsys.readouterr().err
    assert run([*command, "plain"]) == 2
