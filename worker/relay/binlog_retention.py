"""How long a source keeps its binlog, by its own settings."""

from __future__ import annotations

from collections.abc import Mapping

from shardmerge.worker.core.mysql.connection import Session, ask, text_of

_QUERY = (
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN "
    "('binlog_expire_logs_seconds', 'binlog_expire_logs_auto_purge', 'expire_logs_days')"
)
_DAY_SECONDS = 86_400.0


def read_retention(session: Session) -> float | None:
    """Seconds after which the source deletes a binlog file; None: it sets no such limit. Raises
    ``pymysql.MySQLError``."""
    return retention({text_of(name): text_of(value) for name, value in ask(session, _QUERY)})


def retention(variables: Mapping[str, str]) -> float | None:
    """:func:`read_retention`, from the server's variables. Pure. MySQL's expire_logs_days has no effect if the limit in
    seconds is set (its manual, "Binary Logging Options and Variables"); in MariaDB both are one setting."""
    if variables.get("binlog_expire_logs_auto_purge", "ON") == "OFF":
        return None
    seconds = float(variables.get("binlog_expire_logs_seconds", "0"))
    days = float(variables.get("expire_logs_days", "0"))
    return seconds or days * _DAY_SECONDS or None


def left(limit: float, now: float, newest_fetched: float) -> float:
    """Seconds until the source may delete something that is not fetched; at least 0. Pure. ``newest_fetched``: Unix
    time before which everything is fetched."""
    return max(0.0, limit - max(0.0, now - newest_fetched))
