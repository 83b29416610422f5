"""Starts the servers of the benchmark, with the settings that affect the figures.

The target is durable, as for financial data: every commit is on disk when it is answered. The sources are relaxed,
because they only have to write changes quickly; the benchmark measures the program and the target.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

from shardmerge.worker.core.mysql.connection import Side, connect, current_position, server_info
from shardmerge.worker.core.mysql.endpoint import Endpoint
from shardmerge.worker.core.position import SourcePosition
from tests.support.database import Database
from tests.support.mariadb import MariaDB
from tests.support.mysql import MySQL
from tests.support.tidb import TiDB

_SHOWN = (
    "version",
    "innodb_buffer_pool_size",
    "innodb_log_file_size",
    "innodb_redo_log_capacity",
    "innodb_flush_log_at_trx_commit",
    "innodb_doublewrite",
    "innodb_flush_method",
    "log_bin",
    "sync_binlog",
    "max_allowed_packet",
)
_SOURCE_OPTIONS = ("--innodb-buffer-pool-size=512M", "--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0")
_TARGET_OPTIONS = (
    "--innodb-buffer-pool-size=2G",
    "--innodb-flush-log-at-trx-commit=1",
    "--max-allowed-packet=64M",
    "--local-infile=1",
)
# MariaDB's redo log is one file of this size; MySQL's (since 8.0.30) has this size in total.
_REDO_LOG = {"mariadb": "--innodb-log-file-size={}", "mysql": "--innodb-redo-log-capacity={}"}


def make_source(flavor: str, directory: Path, number: int) -> Database:
    return _make(flavor, directory, 100 + number, (*_SOURCE_OPTIONS, _REDO_LOG[flavor].format("256M")))


def make_target(flavor: str, directory: Path, *, binlog: bool) -> Database:
    if flavor == "tidb":
        return TiDB(directory, 200)
    log = ("--sync-binlog=1",) if binlog else ("--skip-log-bin",)
    return _make(flavor, directory, 200, (*_TARGET_OPTIONS, _REDO_LOG[flavor].format("1G"), *log))


def _make(flavor: str, directory: Path, server_id: int, options: tuple[str, ...]) -> Database:
    kind = MySQL if flavor == "mysql" else MariaDB
    return kind(directory, server_id, options)


def shown(server: Database) -> str:
    """Return the settings in force, as the server itself reports them."""
    names = ", ".join(f"'{name}'" for name in _SHOWN)
    found = dict(cast("list[tuple[str, str]]", server.query(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")))
    return ", ".join(f"{name}={found[name]}" for name in _SHOWN if name in found)


def endpoint(server: Database) -> Endpoint:
    return Endpoint(server.host, server.port, "root")


def binlog_end(server: Database) -> SourcePosition:
    """Return where the server's binlog ends now."""
    session = connect(endpoint(server), Side.SOURCE, name="benchmark")
    try:
        return current_position(session, server_info(session))
    finally:
        session.close()
