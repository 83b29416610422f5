"""Which files exist on the worker's machine is not reported to those who name paths; its log has the reason."""

from __future__ import annotations

import logging
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import structlog

from shardmerge.proto import errors
from shardmerge.proto.diagnostics.recent_lines import RecentLines
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import configure
from shardmerge.worker.core.mysql.endpoint import Endpoint, Tls
from shardmerge.worker.core.mysql.tls import context_of


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate and its key."""
    folder = tmp_path_factory.mktemp("pem")
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    line = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=x", "-out", cert, "-keyout", key]
    subprocess.run(line, check=True, capture_output=True)
    return cert, key


def unusable(folder: Path) -> dict[str, str]:
    """Paths that cannot be used, by the reason."""
    (folder / "text").write_text("root:x:0:0\n")
    (folder / "empty").write_text("")
    (folder / "binary").write_bytes(bytes(range(256)) * 20)
    (folder / "secret").write_text("hidden")
    (folder / "secret").chmod(0)
    os.mkfifo(folder / "fifo")
    with (folder / "large").open("wb") as file:
        file.truncate(1 << 40)
    found = {name: str(folder / name) for name in ("missing", "text", "empty", "binary", "secret", "fifo", "large")}
    return found | {
        "folder": str(folder),
        "in no folder": str(folder / "text" / "x"),
        "device": "/dev/zero",
        "too long": str(folder / ("x" * 300)),
        "no path": str(folder / "a\0b"),
    }


def refused(tls: Tls) -> ShardmergeError:
    with pytest.raises(ShardmergeError) as caught:
        context_of(Endpoint("127.0.0.1", 1, "u", tls=tls))
    return caught.value


def without(path: str, error: ShardmergeError) -> tuple[str, str]:
    """What the caller sees, without the path that the caller named."""
    return error.message.replace(path, "PATH"), error.workaround


def test_the_answer_is_the_same_for_every_reason(tmp_path: Path, pem: tuple[str, str]) -> None:
    cert, key = pem
    cases: list[tuple[Callable[[str], Tls], str]] = [
        (lambda path: Tls(ca=path), "ssl-ca PATH"),
        (lambda path: Tls(ca=cert, cert=path, key=key), f"ssl-cert PATH, ssl-key {key}"),
        (lambda path: Tls(ca=cert, cert=cert, key=path), f"ssl-cert {cert}, ssl-key PATH"),
        (lambda path: Tls(cert_content=Path(cert).read_text(), key=path), "ssl-key PATH"),
    ]
    for make, what in cases:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        began = time.process_time()
        answers = {why: without(path, refused(make(path))) for why, path in unusable(folder).items()}
        assert time.process_time() - began < 5
        assert len(set(answers.values())) == 1, answers
        [message] = {message for message, _ in answers.values()}
        assert message == errors.worker.TLS_FILE(files=what).message
        for possible in ("missing", "not readable", "no PEM file", "does not belong to the certificate"):
            assert possible in message, "all possible reasons, whichever it is"
        for name in ("missing", "text"):
            error = refused(make(str(folder / name)))
            assert error.spec is errors.worker.TLS_FILE
            assert error.__cause__ is None and error.__context__ is None, "they are logged, too"


def test_the_first_unusable_file_is_named_whatever_the_others_are(tmp_path: Path, pem: tuple[str, str]) -> None:
    """Otherwise a second path would report whether the first one is there."""
    (tmp_path / "text").write_text("no certificate")
    text, missing = str(tmp_path / "text"), str(tmp_path / "missing")
    found = {without(path, refused(Tls(ca=path, cert=missing, key=missing))) for path in (text, missing)}
    assert len(found) == 1


def test_the_log_has_the_reason_and_what_is_kept_for_others_has_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = RecentLines()
    configure("dm-worker", keeper=kept)
    missing = str(tmp_path / "missing")
    refused(Tls(ca=missing))
    shown = capsys.readouterr().err
    assert "No such file or directory" in shown
    assert missing in shown
    assert kept.lines().first == ()


def test_files_that_can_be_used(pem: tuple[str, str], tmp_path: Path) -> None:
    cert, key = pem
    commented = tmp_path / "commented.pem"
    commented.write_text("# Prüfstelle é\n" + Path(cert).read_text(), encoding="utf-8")
    context = context_of(Endpoint("127.0.0.1", 1, "u", tls=Tls(ca=str(commented), cert=cert, key=key)))
    assert len(context.get_ca_certs()) == 1
    link = tmp_path / "link.pem"
    link.symlink_to(cert)
    assert len(context_of(Endpoint("127.0.0.1", 1, "u", tls=Tls(ca=str(link)))).get_ca_certs()) == 1
