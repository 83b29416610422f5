"""Defines what MariaDB and MySQL servers of the tests have in common: start, connections, queries."""

from __future__ import annotations

import os
import shutil
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple, Self

import pymysql
from pymysql.connections import Connection
from pymysql.constants import ER

from tests.support.loan import LentProcess, borrow
from tests.support.ports import free_port
from tests.support.server import Server
from tests.support.wait import until

KEY_RETRIEVAL = "security: {allow-public-key-retrieval: true}"


_ZONE = os.environ.get("TZ")
"""Time zone of this process, which a server that it starts inherits."""


class Thread(NamedTuple):
    """A connection at a server: its ``id`` there, its user, and what it does."""

    id: int
    user: str
    command: str
    state: str
    statement: str


class Database(Server):
    """A server on a free loopback port, with its data in ``directory``.

    ``root`` has no password over TCP. The binlog is ROW/FULL unless ``options`` (of the server's command line, placed
    after the ones here) change that. ``user``, ``password``: the account that the program under test uses.
    """

    flavor: ClassVar[str]
    """"mariadb" or "mysql"."""

    title: ClassVar[str]
    binlog_end_statement: ClassVar[str]

    def __init__(self, directory: Path, server_id: int, options: tuple[str, ...] = ()) -> None:
        super().__init__(directory)
        self.server_id = server_id
        self.options = options
        self.port = free_port()
        self.host = "127.0.0.1"
        self.user = "root"
        self.password = ""

    @abstractmethod
    def _template(self) -> Path:
        """Return a fresh data directory, to be copied."""

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """Return the program, and the options that this kind of server needs."""

    @property
    def is_plain(self) -> bool:
        """Return whether it has only the options, the environment and the time zone that every server of its kind
        has."""
        return self.options == self.plain_options and not self.environment and os.environ.get("TZ") == _ZONE

    @property
    def plain_options(self) -> tuple[str, ...]:
        """Return the options that every server of its kind has."""
        return ()

    def start(self) -> Self:
        if (self.directory / "data").exists():
            self._start()
            return self
        if self._borrow():
            return self
        self.directory.mkdir(parents=True, exist_ok=True)
        shutil.copytree(self._template(), self.directory / "data")
        # A server that starts removes files that look like temporary tables from its tmpdir: those of other servers
        # too.
        (self.directory / "tmp").mkdir()
        try:
            self._start()
        except AssertionError:
            # Another process may have taken the port. Nothing uses the port number yet, so another one can replace it.
            self.port = free_port()
            self._start()
        return self

    def _borrow(self) -> bool:
        """Use a server of the kept world, which is like a newly started one; return whether that succeeded."""
        if not self.is_plain or self._given_back:
            return False
        self._loan = borrow(self.flavor, server_id=self.server_id)
        if self._loan is None:
            return False
        self.directory = self._loan.directory
        self.port = int(self._loan.facts["port"])
        self._process = LentProcess(self._loan, int(self._loan.facts["process"]))
        return True

    def _start(self) -> None:
        data, scratch = self.directory / "data", self.directory / "tmp"
        self._launch(
            f"{self.title} on port {self.port}",
            [
                *self._command(),
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
                "--sync-binlog=0",
                "--skip-name-resolve",
                # The server waits for a client that is stopped in the middle of its handshake: longer than the default
                # of 10 s.
                "--connect-timeout=600",
                "--performance-schema=OFF",
                *self.options,
            ],
        )

    def _answers(self) -> bool:
        try:
            [(data,)] = self.query("SELECT @@GLOBAL.datadir")
        except pymysql.err.OperationalError:
            return False
        # The directory differs if another process's server has the port.
        return Path(str(data)).resolve() == (self.directory / "data").resolve()

    def connect(self, database: str | None = None, *, user: str = "root", password: str = "") -> Connection:
        """Return an autocommit connection, utf8mb4, UTC."""
        return pymysql.connect(
            host=self.host,
            port=self.port,
            user=user,
            password=password,
            database=database,
            autocommit=True,
            charset="utf8mb4",
            init_command="SET time_zone='+00:00'",
            # Over loopback: loading the system's certificates takes 35 ms of processor time for each connection.
            ssl_disabled=True,
        )

    def execute(self, *statements: str) -> None:
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                for statement in statements:
                    cursor.execute(statement)
        finally:
            connection.close()

    def give_account(self, user: str, password: str, *grants: str) -> None:
        """Let the program under test use this new account from now on; ``grants``: e.g. "SELECT ON *.*"."""
        self.execute(
            f"CREATE USER {user}@'127.0.0.1' IDENTIFIED BY '{password}'",
            *(f"GRANT {grant} TO {user}@'127.0.0.1'" for grant in grants),
        )
        self.user, self.password = user, password

    @property
    def login(self) -> str:
        """Return ``target-database`` or ``from`` of a file, as YAML within braces."""
        return f'{{host: {self.host}, port: {self.port}, user: {self.user}, password: "{self.password}"{self._trust}}}'

    @property
    def _trust(self) -> str:
        """Return the key option: without a certificate MySQL's caching_sha2_password needs the server's key."""
        return f", {KEY_RETRIEVAL}" if self.takes_key else ""

    @property
    def takes_key(self) -> bool:
        """Return whether the program under test may receive this server's key, to encrypt its password."""
        return self.flavor == "mysql"

    def spelt(self, statement: str) -> str:
        """Return ``statement`` in this server's dialect: the tests write statements for MariaDB."""
        return statement

    def query(self, statement: str) -> list[tuple[object, ...]]:
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall())
        finally:
            connection.close()

    def threads(self) -> list[Thread]:
        """Return all connections, including the one that asks.

        MySQL's information_schema.processlist fails (3854) while the statement of any session has a character that
        utf8mb3 does not have; SHOW PROCESSLIST does not.
        """
        # Id, User, Host, db, Command, Time, State, Info, …
        return [
            Thread(int(str(row[0])), str(row[1]), str(row[4]), str(row[6] or ""), str(row[7] or ""))
            for row in self.query("SHOW FULL PROCESSLIST")
        ]

    def kill_threads(self, user: str, command: str = "") -> None:
        """End the connections of ``user``, which may end by themselves meanwhile; with ``command`` only those that
        execute it."""
        for thread in self.threads():
            if thread.user == user and command in ("", thread.command):
                self.kill_thread(thread.id)

    def kill_thread(self, number: int) -> None:
        """End a connection, which may end by itself meanwhile."""
        try:
            self.execute(f"KILL {number}")
        except pymysql.MySQLError as error:
            assert error.args[0] == ER.NO_SUCH_THREAD, error

    def purge(self) -> None:
        """Remove all of the binlog but a new file."""
        self.execute("FLUSH BINARY LOGS")
        self.purge_before(self.binlog_end()[0])

    def purge_before(self, file: str) -> None:
        """Remove the binlog's files before ``file``. A server may keep one for a moment: until a dump that read it has
        ended, and with MariaDB until its binlog checkpoint has reached a later file, which a separate thread writes."""

        def is_first() -> bool:
            self.execute(f"PURGE BINARY LOGS TO '{file}'")
            return str(self.query("SHOW BINARY LOGS")[0][0]) == file

        until(is_first, f"the binlog begins with {file}")

    def dump_threads(self, user: str = "") -> list[int]:
        """Return the ids of the connections that receive the binlog; with ``user`` only those of this user."""
        return [
            thread.id
            for thread in self.threads()
            if thread.command.startswith("Binlog Dump") and user in ("", thread.user)
        ]

    def waits_for_a_table(self) -> bool:
        """Return whether any session waits for the metadata lock of a table."""
        return any("metadata lock" in thread.state for thread in self.threads())

    def binlog_end(self) -> tuple[str, int]:
        """Return the file name and position where the binlog ends now."""
        ((file, position, *_),) = self.query(self.binlog_end_statement)
        assert isinstance(file, str) and isinstance(position, int)
        return file, position
