"""Runs a real MariaDB server on a free loopback port; the test starts and ends it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.database import Database

_TEMPLATE = Path(tempfile.gettempdir()) / f"shardmerge-mariadb-template-{os.getuid()}"


class MariaDB(Database):
    """The MariaDB of the system's packages."""

    flavor = "mariadb"
    title = "MariaDB"
    binlog_end_statement = "SHOW MASTER STATUS"

    def _template(self) -> Path:
        """Return the template, which is made once and copied for every server (2 s instead of 5)."""
        if not (_TEMPLATE / "ready").exists():
            with _TEMPLATE.with_suffix(".lock").open("w") as lock:
                # Other processes wait: they would each make one.
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not (_TEMPLATE / "ready").exists():
                    _make_template()
        return _TEMPLATE

    def _command(self) -> Sequence[str]:
        return ("mariadbd", "--no-defaults", *_as_user(), "--innodb-log-file-size=64M")


def _make_template() -> None:
    scratch = Path(tempfile.mkdtemp(prefix="shardmerge-template-"))
    subprocess.run(
        [
            "mariadb-install-db",
            "--no-defaults",
            f"--datadir={scratch}",
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
            *_as_user(),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    (scratch / "ready").touch()
    scratch.rename(_TEMPLATE)


def _as_user() -> tuple[str, ...]:
    return ("--user=root",) if os.getuid() == 0 else ()
