"""A real MariaDB server on a free loopback port, started and ended by the test."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pymysql
from pymysql.connections import Connection

from tests.support.ports import free_port
from tests.support.server import Server

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


class MariaDB(Server):
    """One server. ``root`` without a password over TCP; binlog ROW/FULL unless ``options`` say otherwise."""

    def __init__(self, directory: Path, server_id: int, options: tuple[str, ...] = ()) -> None:
        super().__init__(directory)
        self.server_id = server_id
        self.options = options
        self.port = free_port()
        self.host = "127.0.0.1"

    def start(self) -> MariaDB:
        data = self.directory / "data"
        if not data.exists():
            self.directory.mkdir(parents=True, exist_ok=True)
            shutil.copytree(_template(), data)
        # A server that starts removes what looks like a temporary table in its tmpdir: of other servers too.
        scratch = self.directory / "tmp"
        scratch.mkdir(exist_ok=True)
        user = ["--user=root"] if os.getuid() == 0 else []
        self._launch(
            f"MariaDB on port {self.port}",
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
        )
        return self

    def _answers(self) -> bool:
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
