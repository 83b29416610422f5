"""How long a source keeps its binlog, by its own settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from shardmerge.worker.core.mysql.connection import Session, ask, text_of
from shardmerge.worker.core.position import SourcePosition

_QUERY = (
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN "
    "('binlog_expire_logs_seconds', 'binlog_expire_logs_auto_purge', 'expire_logs_days', 'max_binlog_total_size', "
    "'binlog_space_limit')"
)
_DAY_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class BinlogLimits:
    """After which the source deletes a binlog file. ``seconds``: since it was last written; ``size``: bytes of all
    files together; each None: it sets no such limit."""

    seconds: float | None = None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class BinlogFile:
    """A file of the source's binlog."""

    name: str
    size: int


def read_limits(session: Session) -> BinlogLimits:
    """Raises ``pymysql.MySQLError``."""
    return limits({text_of(name): text_of(value) for name, value in ask(session, _QUERY)})


def limits(variables: Mapping[str, str]) -> BinlogLimits:
    """:func:`read_limits`, from the server's variables. Pure. MySQL's expire_logs_days has no effect if the limit in
    seconds is set (its manual, "Binary Logging Options and Variables"); in MariaDB both are one setting. The limit of
    the size is max_binlog_total_size in MariaDB 11.4 and newer, and binlog_space_limit in Percona Server."""
    size = int(variables.get("max_binlog_total_size", "0")) or int(variables.get("binlog_space_limit", "0")) or None
    if variables.get("binlog_expire_logs_auto_purge", "ON") == "OFF":
        return BinlogLimits(None, size)
    seconds = float(variables.get("binlog_expire_logs_seconds", "0"))
    days = float(variables.get("expire_logs_days", "0"))
    return BinlogLimits(seconds or days * _DAY_SECONDS or None, size)


def read_files(session: Session) -> tuple[BinlogFile, ...]:
    """All files, the oldest first. The source opens each of them. Raises ``pymysql.MySQLError``."""
    return tuple(BinlogFile(text_of(row[0]), int(row[1])) for row in ask(session, "SHOW BINARY LOGS"))


def bytes_from(files: tuple[BinlogFile, ...], position: SourcePosition) -> int | None:
    """Bytes of the files from the file of ``position`` on: they must stay. None: the file is not there. Pure."""
    names = [file.name for file in files]
    if position.file not in names:
        return None
    return sum(file.size for file in files[names.index(position.file) :])
