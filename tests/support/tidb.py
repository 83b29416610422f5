"""Runs a real TiDB server with its embedded store on a free loopback port; the test starts and ends it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Self

import pymysql

from tests.support.daemon import ROOT
from tests.support.database import Database
from tests.support.ports import free_port

_CONFIGURATION = """\
# Every table in a region of its own would make several commit steps of one transaction.
split-table = false
[log]
level = "warn"
[status]
report-status = false
"""


class TiDB(Database):
    """The TiDB that tests/support/tidb_server/build.sh builds. It is a target only: it writes no binlog."""

    flavor = "tidb"
    title = "TiDB"

    def start(self) -> Self:
        is_new = not (self.directory / "data").exists()
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "tidb.toml").write_text(_CONFIGURATION, encoding="utf-8")
        (self.directory / "tmp").mkdir(exist_ok=True)
        try:
            self._start()
        except AssertionError:
            if not is_new:
                raise
            # Another process may have taken the port. Nothing uses the port number yet, so another one can replace it.
            self.port = free_port()
            self._start()
        if is_new:
            # The embedded store keeps locks in memory only. A transaction that is committed in several steps could be
            # left half committed by a kill; TiKV has no such state. So all keys are committed in one step.
            self.execute("SET GLOBAL tidb_txn_commit_batch_size = 1073741824")
        return self

    def _start(self) -> None:
        self._launch(
            f"{self.title} on port {self.port}",
            [
                *self._command(),
                f"--config={self.directory}/tidb.toml",
                "--store=unistore",
                f"--path={self.directory}/data",
                "--host=127.0.0.1",
                f"-P={self.port}",
                "--socket=",
                f"--temp-dir={self.directory}/tmp",
                f"--log-slow-query={self.directory}/slow.log",
                *self.options,
            ],
        )

    def _template(self) -> Path:
        raise NotImplementedError("a TiDB makes its own data")

    def _command(self) -> Sequence[str]:
        return (str(_provided()),)

    def _answers(self) -> bool:
        try:
            [(port,)] = self.query("SELECT @@port")
        except pymysql.err.OperationalError:
            return False
        return int(str(port)) == self.port


@cache
def _provided() -> Path:
    """Return where `tidb-server` is; build it if it is not there yet."""
    script = ROOT / "tests" / "support" / "tidb_server" / "build.sh"
    found = subprocess.run(["bash", str(script)], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return Path(found.stdout.strip())
