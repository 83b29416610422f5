"""What is wrong with the files of a process is said before anything is sent, and what they hold never."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from shardmerge.proto import errors
from shardmerge.proto.errors import ErrorSpec, ShardmergeError
from shardmerge.proto.tls import process
from shardmerge.proto.tls.files import read_certificates, readable_by_others
from shardmerge.proto.tls.model import Tls, TlsFiles, incomplete
from shardmerge.proto.tls.process import key_warning, use_in_daemon
from shardmerge.proto.tls.store import CertificateStore
from tests.support.certificates import Authority, serial_of


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture(autouse=True)
def plain_afterwards() -> Iterator[None]:
    yield
    process.use(None)


def refused(files: TlsFiles, spec: ErrorSpec) -> str:
    with pytest.raises(ShardmergeError) as caught:
        read_certificates(files)
    assert caught.value.spec is spec
    assert "PRIVATE" not in str(caught.value)
    return str(caught.value)


def test_what_they_contain(authority: Authority) -> None:
    found = read_certificates(authority.issue("m", "dm-master", hosts=("10.0.0.5", "master.example")))
    assert (found.name, found.hosts) == ("dm-master", ("master.example", "10.0.0.5"))
    assert "PRIVATE" not in repr(found)


def test_an_authority_alone(authority: Authority) -> None:
    """Enough for an etcd that asks nobody for a certificate."""
    found = read_certificates(TlsFiles(authority.ca))
    assert (found.cert, found.key, found.until) == (b"", b"", None)


@pytest.mark.parametrize("part", ["ca", "cert", "key"])
def test_a_file_that_is_missing(authority: Authority, part: str) -> None:
    files = replace(authority.issue("m", "dm-master"), **{part: "/nowhere/file.pem"})
    said = refused(files, errors.tls.FILE_UNUSABLE)
    assert f"ssl-{part}: /nowhere/file.pem" in said
    assert "No such file" in said
    assert f"etcd-ssl-{part}" in refused(replace(files, prefix="etcd-"), errors.tls.FILE_UNUSABLE)


@pytest.mark.parametrize("part", ["ca", "cert", "key"])
def test_a_file_of_another_kind(authority: Authority, tmp_path: Path, part: str) -> None:
    (tmp_path / "garbage").write_text("secret things\n")
    files = replace(authority.issue("m", "dm-master"), **{part: str(tmp_path / "garbage")})
    said = refused(files, errors.tls.FILE_UNUSABLE)
    assert "PEM form" in said
    assert "secret" not in said


def test_a_key_with_a_passphrase(authority: Authority) -> None:
    files = authority.issue("m", "dm-master")
    key = serialization.load_pem_private_key(Path(files.key).read_bytes(), None)
    Path(files.key).write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"pass"),
        )
    )
    assert "passphrase" in refused(files, errors.tls.FILE_UNUSABLE)


def test_the_key_of_another_certificate(authority: Authority) -> None:
    one, other = authority.issue("one", "dm-master"), authority.issue("other", "dm-worker")
    said = refused(replace(one, key=other.key), errors.tls.KEY_DIFFERS)
    assert one.cert in said
    assert other.key in said


def test_a_certificate_that_has_expired(authority: Authority) -> None:
    files = authority.issue("m", "dm-master", days=-1)
    assert files.cert in refused(files, errors.tls.NOT_VALID_NOW)


def test_a_key_that_everybody_can_read(authority: Authority) -> None:
    files = authority.issue("m", "dm-master")
    assert key_warning(files) is None
    Path(files.key).chmod(0o640)
    assert readable_by_others(files) == ""
    Path(files.key).chmod(0o644)
    warning = key_warning(files)
    assert warning is not None
    assert warning.spec is errors.tls.KEY_READABLE
    assert f"{files.key} can be read by every user of this machine (mode 644)" in warning.message


def test_a_process_whose_own_name_is_not_allowed(authority: Authority) -> None:
    files = authority.issue("w", "dm-worker")
    use_in_daemon(Tls(files, ("dm-worker", "dmctl")))
    with pytest.raises(ShardmergeError) as caught:
        use_in_daemon(Tls(files, ("dm-master",)))
    assert caught.value.spec is errors.tls.OWN_NAME
    assert "dm-worker" in caught.value.message


def test_files_that_are_replaced(authority: Authority) -> None:
    files = authority.issue("m", "dm-master")
    keeper = CertificateStore(files)
    first = keeper.current()
    assert keeper.current() is first
    before = serial_of(files.cert)
    authority.issue("m", "dm-master")
    assert serial_of(files.cert) != before
    assert keeper.current() != first


def test_files_that_do_not_fit_together_yet(authority: Authority) -> None:
    """A certificate and its key are two files: in between, the old ones hold."""
    files = authority.issue("m", "dm-master")
    old_key = Path(files.key).read_bytes()
    keeper = CertificateStore(files)
    first = keeper.current()
    authority.issue("m", "dm-master")
    new_key = Path(files.key).read_bytes()
    Path(files.key).write_bytes(old_key)
    assert keeper.current() is first
    Path(files.cert).unlink()
    assert keeper.current() is first
    authority.issue("m", "dm-master")
    Path(files.key).write_bytes(new_key)
    assert keeper.current() is first
    authority.issue("m", "dm-master")
    assert keeper.current() is not first


def test_a_process_with_wrong_files_speaks_no_plain_text(authority: Authority) -> None:
    files = authority.issue("m", "dm-master")
    os.unlink(files.key)
    with pytest.raises(ShardmergeError):
        process.use(Tls(files))
    with pytest.raises(ShardmergeError) as caught:
        process.certificate_store()
    assert caught.value.spec is errors.tls.FILE_UNUSABLE


def test_some_of_the_three_files() -> None:
    assert incomplete({}) is None
    assert incomplete({"ssl-ca": "a", "ssl-cert": "b", "ssl-key": "c"}) is None
    found = incomplete({"ssl-key": "c"})
    assert found is not None
    assert found == ("ssl-key", "ssl-ca, ssl-cert and ssl-key go together: ssl-ca and ssl-cert are missing")
