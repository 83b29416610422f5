"""Tests when certificates end."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from shardmerge.proto.tls.model import TlsFiles
from shardmerge.proto.warnings.certificates import (
    CertificateEnd,
    CertificateEnds,
    CertificateFile,
    Use,
    certificate_warnings,
    files_of_daemon,
    first_ends,
    relevant_end,
)
from tests.support.certificates import Authority

_DAY = 86_400.0


def _file(path: str, use: Use = Use.OWN) -> CertificateFile:
    return CertificateFile(use, "this daemon", path)


def test_a_replaced_file_is_read_again(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    files = authority.issue("own", "own", days=10)
    ends = CertificateEnds()
    wanted = files_of_daemon(files, None)
    assert [each.use for each in wanted] == [Use.OWN_CA, Use.OWN]
    first = first_ends(ends.read(wanted))
    assert first[Use.OWN] == pytest.approx(time.time() + 10 * _DAY, abs=60)
    assert first[Use.OWN_CA] > first[Use.OWN]
    authority.issue("own", "own", days=100)
    assert first_ends(ends.read(wanted))[Use.OWN] == pytest.approx(time.time() + 100 * _DAY, abs=60)


def test_what_cannot_be_read_has_no_end(tmp_path: Path) -> None:
    (tmp_path / "text.pem").write_text("no certificate")
    wanted = [_file(str(tmp_path / "missing.pem")), _file(str(tmp_path / "text.pem")), CertificateFile(Use.SOURCE, "s")]
    assert CertificateEnds().read(wanted) == ()


def test_no_path_of_a_configuration_holds_or_ends_the_thread(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    good = Authority(tmp_path).issue("own", "own").cert
    found: list[CertificateEnd] = []

    def read() -> None:
        found.extend(
            CertificateEnds().read([_file(path) for path in ("a\0b", str(tmp_path / "pipe"), "/dev/zero", good)])
        )

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(20)
    assert [each.file.path for each in found] == [good]


def test_a_text_instead_of_a_file(tmp_path: Path) -> None:
    files = Authority(tmp_path).issue("own", "own", days=3)
    content = CertificateFile(Use.TARGET, "the target of task t", content=Path(files.cert).read_text())
    [found] = CertificateEnds().read([content])
    assert found.ends == pytest.approx(time.time() + 3 * _DAY, abs=60)
    assert "BEGIN" not in repr(found)
    [warning] = certificate_warnings([found], time.time())
    assert warning.message.startswith("the certificate of the target of task t ends at ")


def test_only_the_files_that_are_configured() -> None:
    assert files_of_daemon(None, None) == ()
    assert [each.use for each in files_of_daemon(None, TlsFiles("ca.pem"))] == [Use.ETCD_CA]


@pytest.mark.parametrize(
    ("ends", "use", "expected"),
    [
        ((500.0, 300.0), Use.OWN, 300.0),  # of a chain the first
        ((50.0, 500.0), Use.OWN_CA, 500.0),  # of authorities the first that has not passed
        ((500.0, 300.0), Use.OWN_CA, 300.0),
        ((50.0, 70.0), Use.OWN_CA, 70.0),
    ],
)
def test_the_end_of_several(ends: tuple[float, ...], use: Use, expected: float) -> None:
    assert relevant_end(ends, 100.0, use) == expected


def test_warnings_the_first_end_first_and_each_file_once() -> None:
    now = 1_700_000_000.0
    found = [
        CertificateEnd(_file("a.pem"), now + 5 * _DAY),
        CertificateEnd(_file("a.pem", Use.ETCD), now + 5 * _DAY),
        CertificateEnd(_file("b.pem", Use.TARGET_CA), now - _DAY),
        CertificateEnd(_file("c.pem"), now + 15 * _DAY),
    ]
    warnings = list(certificate_warnings(found, now))
    assert [each.due for each in warnings] == [now - _DAY, now + 5 * _DAY]
    assert warnings[0].message == (
        "the authority that is trusted for this daemon (b.pem) ended at 2023-11-13 22:13:20 UTC"
    )
    assert warnings[1].message.endswith("(a.pem) ends at 2023-11-19 22:13:20 UTC, in 5 d 0 h")
