"""A real MariaDB server on a free loopback port, started and ended by the test."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

import pymysql
from pymysql.connections import Connection

from tests.support.ports import free_port
from tests.support.wait import until

_TEMPLATE = Path(tempfile.gettempdir()) / f"shardmerge-mariadb-template-{os.getuid()}"


def _template() -> Path:
    """A fresh data directory, made once and copied for every server (2 s instead of 5)."""
    if not (_TEMPLATE / "ready").exists():
        scratch = Path(tempfile.mkdtemp(prefix="shardmerge-template-"))
        subprocess.run(
            [
                "mariadb-install-db",
                "--no-defaults",
                f"--datadir={scratch}",
                "--auth-root-authentication-method=normal",
                "--skip-test-db",
                *(["--user=root"] if os.getuid() == 0 else []),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        (scratch / "ready").touch()
        try:
            scratch.rename(_TEMPLATE)
        except OSError:  # another process was first
            shutil.rmtree(scratch, ignore_errors=True)
    return _TEMPLATE


class MariaDB:
    """One server. ``root`` without a password over TCP; binlog ROW/FULL unless ``options`` say otherwise."""

    def __init__(self, directory: Path, server_id: int, options: tuple[str, ...] = ()) -> None:
        self.directory = directory
        self.server_id = server_id
        self.options = options
        self.port = free_port()
        self.host = "127.0.0.1"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> MariaDB:
        data = self.directory / "data"
        if not data.exists():
            self.directory.mkdir(parents=True, exist_ok=True)
            shutil.copytree(_template(), data)
        # A server that starts removes what looks like a temporary table in its tmpdir: of other servers too.
        scratch = self.directory / "tmp"
        scratch.mkdir(exist_ok=True)
        user = ["--user=root"] if os.getuid() == 0 else []
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    "mariadbd",
                    "--no-defaults",
                    *user,
                    f"--datadir={data}",
                    f"--tmpdir={scratch}",
                    f"--socket={self.directory}/s.sock",
                    f"--pid-file={self.directory}/pid",
                    f"--port={self.port}",
                    "--bind-address=127.0.0.1",
                    f"--server-id={self.server_id}",
                    "--log-bin=mysql-bin",
                    "--binlog-format=ROW",
                    "--binlog-row-image=FULL",
                    "--innodb-buffer-pool-size=128M",
                    "--innodb-flush-log-at-trx-commit=2",
                    "--innodb-log-file-size=64M",
                    "--skip-name-resolve",
                    "--performance-schema=OFF",
                    *self.options,
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until(self._answers, f"MariaDB on port {self.port} answers (see {self.directory}/server.log)", 120)
        return self

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"MariaDB ended: see {self.directory}/server.log")
        try:
            self.connect().close()
        except pymysql.err.OperationalError:
            return False
        return True

    def connect(self, database: str | None = None, *, user: str = "root", password: str = "") -> Connection:
        """An autocommit connection, utf8mb4, UTC."""
        return pymysql.connect(
            host=self.host,
            port=self.port,
            user=user,
            password=password,
            database=database,
            autocommit=True,
            charset="utf8mb4",
            init_command="SET time_zone='+00:00'",
        )

    def execute(self, *statements: str) -> None:
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
        finally:
            connection.close()

    def query(self, statement: str) -> list[tuple[object, ...]]:
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall())
        finally:
            connection.close()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """kill -9 and wait for the end; :meth:`start` brings it back on the same port and data."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def ensure_running(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self.start()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
