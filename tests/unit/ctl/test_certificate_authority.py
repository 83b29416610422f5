"""What `dmctl tls init` makes and what `dmctl tls revoke` lists, for the processes and for etcd."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from shardmerge.ctl.certificate_authority import CertificateSubject, make, parse_name, revoke
from shardmerge.ctl.main import run
from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError

_MEMBERS = (CertificateSubject("master-1", ("10.0.0.1",)), CertificateSubject("worker-1", ("10.0.0.2",)))
_ETCD = (CertificateSubject("etcd-1", ("10.0.0.1",)),)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "tls"
    make(made, _MEMBERS, etcd=_ETCD)
    return made


def _names(folder: Path) -> set[str]:
    found = {path.stem for path in folder.glob("*.pem")}
    assert found == {path.stem for path in folder.glob("*.key")}
    return found


def _content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def _listed(folder: Path) -> list[int]:
    """The serial numbers on the list, which the authority has signed."""
    found = x509.load_der_x509_crl((folder / "ca.crl").read_bytes())
    authority = _certificate(folder / "ca.pem")
    assert found.is_signature_valid(authority.public_key())  # pyright: ignore[reportArgumentType]
    assert found.next_update_utc == authority.not_valid_after_utc
    return [each.serial_number for each in found]


def _serial(path: Path) -> int:
    return _certificate(path).serial_number


def _refused(reason: str) -> pytest.RaisesExc[ShardmergeError]:
    return pytest.raises(ShardmergeError, match=reason, check=lambda error: error.spec is errors.ctl.TLS_INIT)


def test_etcd_has_an_authority_of_its_own(folder: Path) -> None:
    inner = folder / "etcd"
    assert _names(folder) == {"ca", "master-1", "worker-1", "dmctl"}
    assert _names(inner) == {"ca", "etcd-1", "master-1", "worker-1"}
    ours, theirs = _certificate(folder / "ca.pem"), _certificate(inner / "ca.pem")
    assert ours.subject != theirs.subject
    for place, authority in ((folder, ours), (inner, theirs)):
        for name in _names(place):
            _certificate(place / f"{name}.pem").verify_directly_issued_by(authority)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder, inner)} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in _content(folder)} == {0o600}
    assert _listed(folder) == _listed(inner) == []


def test_clients_are_no_servers(folder: Path) -> None:
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    for name, usages in {"etcd/etcd-1": both, "etcd/worker-1": both[1:], "worker-1": both, "dmctl": both[1:]}.items():
        extensions = _certificate(folder / f"{name}.pem").extensions
        assert list(extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == usages
        has_hosts = any(isinstance(each.value, x509.SubjectAlternativeName) for each in extensions)
        assert has_hosts is (usages == both)


def test_more_names_are_added_to_both(folder: Path) -> None:
    before = _content(folder)
    made, of_etcd = make(
        folder,
        [CertificateSubject("worker-2", ("10.0.0.3",)), CertificateSubject("anna", None)],
        etcd=[CertificateSubject("etcd-2")],
    )
    assert of_etcd is not None
    assert (made.authority, made.members) == (False, ("worker-2", "anna"))
    assert (of_etcd.authority, of_etcd.members) == (False, ("etcd-2", "worker-2"))
    made, of_etcd = make(folder, [CertificateSubject("worker-3")])
    assert of_etcd is not None and made.members == of_etcd.members == ("worker-3",)
    assert before.items() <= _content(folder).items()


def test_one_authority_as_before(tmp_path: Path) -> None:
    """A script that makes etcd's certificate as that of one more process; later etcd gets its own authority."""
    folder = tmp_path / "tls"
    made, of_etcd = make(folder, [*_MEMBERS, CertificateSubject("etcd-1")])
    assert of_etcd is None and not (folder / "etcd").exists()
    before = _content(folder)
    with _refused("master-1.pem: it exists already"):
        make(folder, _MEMBERS, etcd=_ETCD)
    assert _content(folder) == before
    made, of_etcd = make(folder, [CertificateSubject("master-1"), CertificateSubject("worker-1")], etcd=_ETCD)
    assert of_etcd is not None
    assert (made.members, of_etcd.authority, of_etcd.members) == ((), True, ("etcd-1", "master-1", "worker-1"))
    assert before.items() <= _content(folder).items()


def test_the_missing_one_of_two_pairs_is_made(folder: Path) -> None:
    with _refused("worker-1.pem: it exists already"):
        make(folder, [CertificateSubject("worker-1")])
    for place, member in (
        (folder / "etcd", CertificateSubject("worker-1")),
        (folder, CertificateSubject("worker-1", ("10.0.0.2",))),
    ):
        for kind in ("pem", "key"):
            (place / f"worker-1.{kind}").rename(folder.parent / f"old.{kind}")
        made, of_etcd = make(folder, [member])
        assert of_etcd is not None
        assert (made.members, of_etcd.members) == (((), ("worker-1",)) if place.name == "etcd" else (("worker-1",), ()))


@pytest.mark.parametrize("name", ["etcd-1", "worker-1"])
def test_nothing_of_etcd_is_overwritten(folder: Path, name: str) -> None:
    before = _content(folder)
    with _refused(f"etcd/{name}.pem: it exists already"):
        make(folder, [CertificateSubject("worker-9")], etcd=[CertificateSubject(name)])
    with _refused("a name is listed twice"):
        make(folder, [CertificateSubject("worker-9")], etcd=[CertificateSubject("worker-9")])
    (folder / "etcd" / "ca.key").unlink()
    with _refused("it holds one of ca.pem and ca.key"):
        make(folder, [CertificateSubject("worker-9")])
    assert _content(folder).items() <= before.items()


def test_revoked_certificates_stay_on_the_lists(folder: Path) -> None:
    inner = folder / "etcd"
    revoked = revoke(folder, ["worker-1"])
    assert (revoked.processes, revoked.etcd) == (("worker-1",), ("worker-1",))
    assert revoked.accepted == ("dmctl", "master-1")
    assert _listed(folder) == [_serial(folder / "worker-1.pem")]
    assert _listed(inner) == [_serial(inner / "worker-1.pem")]
    for _ in range(2):
        revoked = revoke(folder, ["dmctl", "etcd-1"])
        assert (revoked.processes, revoked.etcd, revoked.accepted) == (("dmctl",), ("etcd-1",), ("master-1",))
    assert _listed(folder) == [_serial(folder / f"{name}.pem") for name in ("worker-1", "dmctl")]
    assert _listed(inner) == [_serial(inner / f"{name}.pem") for name in ("worker-1", "etcd-1")]
    assert stat.S_IMODE((inner / "ca.crl").stat().st_mode) == 0o600


def test_a_name_with_a_revoked_certificate_is_not_accepted(folder: Path) -> None:
    """A process cannot distinguish two certificates of one name."""
    for kind in ("pem", "key"):
        (folder / f"worker-1.{kind}").rename(folder / f"stolen.{kind}")
    make(folder, [CertificateSubject("worker-1", ("10.0.0.2",))])
    (folder / "notes.pem").write_text("another file")
    assert revoke(folder, ["stolen"]).accepted == ("dmctl", "master-1")


def test_what_cannot_be_revoked(folder: Path, tmp_path: Path) -> None:
    make(tmp_path / "other", [CertificateSubject("alien")])
    (tmp_path / "other" / "alien.pem").rename(folder / "etcd" / "alien.pem")
    before = _content(folder)
    with _refused("worker-9.pem: there is no such file, and none in etcd"):
        revoke(folder, ["worker-1", "worker-9"])
    with _refused("etcd/alien.pem: it is no certificate of the authority in .*etcd"):
        revoke(folder, ["worker-1", "alien"])
    with _refused("there is no such file"):
        revoke(tmp_path / "nowhere", ["worker-1"])
    assert _content(folder) == before
    for wrong in (b"no list", (tmp_path / "other" / "ca.crl").read_bytes()):
        (folder / "ca.crl").write_bytes(wrong)
        with _refused("ca.crl: it is no list of the authority"):
            revoke(folder, ["worker-1"])
    assert _listed(folder / "etcd") == []


def test_a_list_is_made_for_an_authority_without_one(folder: Path) -> None:
    """As earlier versions have made it."""
    (folder / "ca.crl").unlink()
    revoke(folder, ["worker-1"])
    assert _listed(folder) == [_serial(folder / "worker-1.pem")]


def test_the_authority_itself_is_no_name() -> None:
    with pytest.raises(ValueError, match="is not 'ca'"):
        parse_name("ca")


def test_what_the_commands_print(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "tls")
    words = ["--output", "table", "tls", "init", "--dir", folder]
    assert run([*words, "worker-1=10.0.0.2"]) == 0
    printed = capsys.readouterr().out
    assert "etcd-ssl" not in printed and f"dmctl tls init --dir {folder} --etcd etcd-1=10.0.0.1 worker-1" in printed
    assert run([*words, "--etcd", "etcd-1=10.0.0.1", "worker-1"]) == 0
    printed = capsys.readouterr().out
    assert "--client-cert-auth --trusted-ca-file ca.pem --cert-file etcd-1.pem --key-file etcd-1.key" in printed
    for key, file in {"ca": "ca.pem", "cert": "worker-1.pem", "key": "worker-1.key"}.items():
        assert f"    ssl-{key}: /etc/shardmerge/tls/{file}\n" in printed
        assert f"    etcd-ssl-{key}: /etc/shardmerge/tls/etcd/{file}\n" in printed
    assert run([*words, "--client", "anna"]) == 0
    assert "Certificates of anna are in" in capsys.readouterr().out
    assert run(["--output", "table", "tls", "revoke", "--dir", folder, "worker-1"]) == 0
    printed = capsys.readouterr().out
    assert f"{folder}/etcd/ca.crl" in printed and "    cert-allowed-cn: [anna, dmctl]\n" in printed
    assert run(["tls", "revoke", "--dir", folder, "unknown"]) == 1
    assert "[80053 tls-init]" in capsys.readouterr().err
