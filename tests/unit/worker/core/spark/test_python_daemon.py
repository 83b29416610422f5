"""Where the parent of Spark's Python processes makes its socket."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import pytest

from shardmerge.worker.core.spark.python_daemon import private_sockets, quiet_at_end

_VARIABLE = "PYTHON_WORKER_FACTORY_SOCK_DIR"
_NAME = ".5a3bcd31-63c5-4a0b-9dcd-0a63f0a35a2c.sock"


def test_the_folder_of_a_worker_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as private:
        monkeypatch.setenv(_VARIABLE, private)
        with private_sockets():
            assert os.environ[_VARIABLE] == private
        assert Path(private).exists()


@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_elsewhere_a_private_folder_is_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: int) -> None:
    """As on a standalone cluster, and on YARN, where the folder is private and its path long."""
    named = tmp_path / ("x" * (100 if mode == 0o700 else 1))
    named.mkdir()
    named.chmod(mode)
    container = tmp_path / ("y" * 120)
    container.mkdir()
    monkeypatch.chdir(container)
    monkeypatch.setenv(_VARIABLE, str(named))
    with private_sockets():
        made = os.environ[_VARIABLE]
        assert Path(made).resolve().parent == container
        assert Path(made).stat().st_mode & 0o777 == 0o700
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(os.path.join(made, _NAME))
    assert list(container.iterdir()) == []
    assert list(named.iterdir()) == []


@pytest.mark.parametrize("error", [BrokenPipeError, ConnectionResetError])
def test_a_child_ends_quietly_after_its_jvm(error: type[OSError]) -> None:
    def serve(_: socket.socket, __: bool) -> int:
        raise error

    with socket.socket(socket.AF_UNIX) as connection:
        assert quiet_at_end(serve)(connection, True) == 1


def test_other_errors_of_a_child_are_raised() -> None:
    def serve(_: socket.socket, __: bool) -> int:
        raise ValueError

    with socket.socket(socket.AF_UNIX) as connection, pytest.raises(ValueError):
        quiet_at_end(serve)(connection, True)
