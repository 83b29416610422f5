"""Provides database servers of other versions than those of most tests (tests/versions/provide.sh fetches them)."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.support.daemon import ROOT
from tests.support.database import Database
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL

NAMES = ("mariadb-10.2", "mariadb-10.11", "mariadb-11.4", "mariadb-11.8", "mysql-8.0", "mysql-9.7")
"""The versions: the oldest and the newest that package registries have, and the ones between. mariadb-10.11 is that of
the system's packages, mysql-9.7 that of deploy/system.sh."""

_SYSTEM_TABLES = (
    ("mariadb_system_tables.sql", "mysql_system_tables.sql"),
    ("mariadb_performance_tables.sql", "mysql_performance_tables.sql"),
    ("mariadb_system_tables_data.sql", "mysql_system_tables_data.sql"),
    ("fill_help_tables.sql",),
)
"""The statements that make a data directory, in their order: the first of each that a version has."""


def server(name: str, folder: Path, server_id: int) -> Database:
    """Return a server of the version ``name`` that is not started."""
    if name == "mariadb-10.11":
        return MariaDB(folder, server_id)
    if name == "mysql-9.7":
        return MySQL(folder, server_id)
    if name.startswith("mysql"):
        return OtherMySQL(name, folder, server_id)
    return OtherMariaDB(name, folder, server_id)


@cache
def _provided(name: str) -> Path:
    """Return the folder of the server; fetch it if it is not there yet."""
    found = subprocess.run(
        ["bash", "tests/versions/provide.sh", name], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    return Path(found.stdout.strip())


def _as_user() -> tuple[str, ...]:
    return ("--user=root",) if os.getuid() == 0 else ()


class OtherMariaDB(MariaDB):
    """A MariaDB of another version than that of the system's packages."""

    def __init__(self, name: str, directory: Path, server_id: int) -> None:
        super().__init__(directory, server_id)
        self._name = name

    @property
    def is_plain(self) -> bool:
        return False

    def _template(self) -> Path:
        folder = _provided(self._name)
        template = folder / "template"
        if not template.exists():
            scratch = Path(tempfile.mkdtemp(prefix="template-", dir=folder))
            (scratch / "mysql").mkdir()
            statements = ["USE mysql;\nSET @skip_auth_root_nopasswd=NULL;\nSET @auth_root_socket=NULL;\n"]
            for names in _SYSTEM_TABLES:
                found = next(path for path in (folder / "share" / name for name in names) if path.exists())
                # Lines with the host's name are for accounts of that host, which may not resolve.
                lines = found.read_text(encoding="utf-8").splitlines(keepends=True)
                statements += [line for line in lines if "@current_hostname" not in line]
            subprocess.run(
                [
                    str(folder / "mysqld"),
                    *_as_user(),
                    f"--datadir={scratch}",
                    "--bootstrap",
                    "--log-warnings=0",
                    "--enforce-storage-engine=",
                    "--max-allowed-packet=8M",
                ],
                input="".join(statements).encode(),
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            try:
                scratch.rename(template)
            except OSError:  # another process has made it first
                shutil.rmtree(scratch)
        return template

    def _command(self) -> Sequence[str]:
        return (str(_provided(self._name) / "mysqld"), *_as_user(), "--innodb-log-file-size=64M")


class OtherMySQL(MySQL):
    """A MySQL of another version than that of deploy/system.sh."""

    binlog_end_statement = "SHOW MASTER STATUS"

    def __init__(self, name: str, directory: Path, server_id: int) -> None:
        super().__init__(directory, server_id)
        self._name = name

    @property
    def is_plain(self) -> bool:
        return False

    def _folder(self) -> Path:
        return _provided(self._name)
