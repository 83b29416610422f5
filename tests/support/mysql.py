"""Runs a real MySQL 9 server on a free loopback port; the test starts and ends it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.support.daemon import ROOT
from tests.support.database import Database

_SPELLINGS = {
    "ENGINE=Aria": "ENGINE=MyISAM",
    "utf8mb4_unicode_520_nopad_ci": "utf8mb4_0900_ai_ci",
    " IGNORED": " INVISIBLE",
}
_SEQUENCE = re.compile(r"\bFROM (?:\w+\.)?(seq_1_to_(\d+))\b")


class MySQL(Database):
    """The MySQL that deploy/system.sh provides. GTIDs are on unless ``gtid`` is False."""

    flavor = "mysql"
    title = "MySQL"
    binlog_end_statement = "SHOW BINARY LOG STATUS"

    def __init__(self, directory: Path, server_id: int, options: tuple[str, ...] = (), *, gtid: bool = True) -> None:
        super().__init__(directory, server_id, (*_gtid_options(gtid), *options))

    @property
    def plain_options(self) -> tuple[str, ...]:
        return _gtid_options(True)

    def spelt(self, statement: str) -> str:
        """Replace engine and collation by equivalents of this server, and ``seq_1_to_<n>`` of the sequence engine by
        its numbers."""
        for theirs, ours in _SPELLINGS.items():
            statement = statement.replace(theirs, ours)
        return _SEQUENCE.sub(_counted, statement)

    def _folder(self) -> Path:
        """Return where `mysqld` is."""
        return _provided()

    def _template(self) -> Path:
        """Return the template, which is made once per provided MySQL and copied for every server."""
        folder = self._folder()
        template = folder / "template"
        if not template.exists():
            scratch = Path(tempfile.mkdtemp(prefix="template-", dir=folder))
            # Without name resolution 127.0.0.1 is not localhost.
            (scratch / "init.sql").write_text(
                "CREATE USER root@'127.0.0.1';\nGRANT ALL ON *.* TO root@'127.0.0.1' WITH GRANT OPTION;\n"
            )
            subprocess.run(
                [
                    str(folder / "mysqld"),
                    *_as_user(),
                    f"--datadir={scratch}/data",
                    "--initialize-insecure",
                    f"--init-file={scratch}/init.sql",
                    "--innodb-redo-log-capacity=8M",
                    "--secure-file-priv=NULL",
                ],
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            # This file has the server's UUID: each copy must make its own.
            (scratch / "data" / "auto.cnf").unlink()
            try:
                (scratch / "data").rename(template)
            except OSError:  # another process has made it first
                pass
            finally:
                shutil.rmtree(scratch)
        return template

    def _command(self) -> Sequence[str]:
        return (
            str(self._folder() / "mysqld"),
            *_as_user(),
            "--mysqlx=OFF",
            "--secure-file-priv=NULL",
            "--binlog-row-metadata=FULL",
            "--innodb-redo-log-capacity=64M",
            "--innodb-log-buffer-size=16M",
            # Only a machine failure would lose data by this setting, not a killed process.
            "--innodb-flush-method=nosync",
        )


def _gtid_options(gtid: bool) -> tuple[str, ...]:
    mode = "ON" if gtid else "OFF"
    return (f"--gtid-mode={mode}", f"--enforce-gtid-consistency={mode}")


def _counted(match: re.Match[str]) -> str:
    name, last = match.groups()
    return (
        "FROM (WITH RECURSIVE n (seq) AS "
        f"(SELECT CAST(1 AS UNSIGNED) UNION ALL SELECT seq + 1 FROM n WHERE seq < {last}) "
        f"SELECT /*+ SET_VAR(cte_max_recursion_depth = {last}) */ seq FROM n) AS {name}"
    )


@cache
def _provided() -> Path:
    """Return where `mysqld` is; download it if it is not there yet."""
    found = subprocess.run(
        ["bash", "-c", ". deploy/system.sh && install_packages mysql && provide_mysql"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Path(found.stdout.strip())


def _as_user() -> tuple[str, ...]:
    return ("--user=root",) if os.getuid() == 0 else ()
