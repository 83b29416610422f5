"""Resolves where incremental replication begins if no position is configured: the source's oldest binlog, or a time.

With a time, it begins at the first group that committed at or after it. No such group is ever left out. MySQL 8 records
exactly when groups committed. Other binlogs only record when their statements began: a group that seems older by up to
``COMMIT_TIME_ERROR_SECONDS`` may have committed at the time or after it. So replication begins that much earlier, and
up to the time rows may already be at the target (``StartPoint.safe_mode_until``). Until then the lanes write as with
safe-mode, which brings a target that holds the state of that time back to it. (Replication does not begin before a DDL
that proves everything before it to be older.) TiDB DM begins by the events' header times at any source, and writes its
first minute as with safe-mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from shardmerge.proto import config_pb2, errors
from shardmerge.worker.core.mysql import server_clock
from shardmerge.worker.core.mysql.connection import Endpoint, ServerInfo, Session, current_position, rows, text_of
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.core.stop_signal import StopSignal
from shardmerge.worker.core.table import Table
from shardmerge.worker.relay.fetch.file_times import file_times, last_before
from shardmerge.worker.relay.log.files import FIRST_BYTE
from shardmerge.worker.relay.relay import Relay

COMMIT_TIME_ERROR_SECONDS = 600.0
"""How much later than the binlog's time a transaction may have committed, if the binlog has no commit times: the
runtime of the committing statement plus a replica's lag."""

_EXACT_FROM = (8, 0, 1)
_LOCATE_SECONDS = 600.0


class StartPoint(NamedTuple):
    """Where replication begins. ``safe_mode_until``: changes before this position may already be at the target; None:
    none are."""

    start: SourcePosition
    safe_mode_until: SourcePosition | None


@dataclass(frozen=True, slots=True)
class StartResolver:
    """Resolves the start of one subtask. ``may_restart_relay``: no other subtask needs the present relay log."""

    source: str
    endpoint: Endpoint
    session: Session
    info: ServerInfo
    relay: Relay
    may_restart_relay: bool
    stop: StopSignal

    def resolve(self, given: config_pb2.StartAt) -> StartPoint | None:
        """The configured start; None: the present end of the source's binlog.

        Raises START_TOO_EARLY, START_TOO_LATE, TIME_UNCLEAR, what the relay raises, and ``pymysql.MySQLError``.
        """
        match given.WhichOneof("at"):
            case "earliest":
                return StartPoint(self._file(self._files()[0]), None)
            case "time":
                return self._by_time(given.time)
            case _:
                return None

    def _files(self) -> list[str]:
        current_position(self.session, self.info)  # raises NO_BINLOG
        return [text_of(row[0]) for row in rows(self.session, "SHOW BINARY LOGS")]

    def _file(self, name: str) -> SourcePosition:
        return SourcePosition(name, FIRST_BYTE, server=self.info.identity)

    def _by_time(self, text: str) -> StartPoint:
        moment = parse_past_time(self.session, text, self.source)
        end = current_position(self.session, self.info)
        exact = has_commit_times(self.info)
        early = moment if exact else moment - COMMIT_TIME_ERROR_SECONDS
        files = self._files()
        file = last_before(files, early, lambda name: file_times(self.source, self.endpoint, name))
        if file is None:
            begun = file_times(self.source, self.endpoint, files[0]).begun
            if begun > moment:
                raise errors.replicate.START_TOO_EARLY(
                    source=self.source, time=text, file=files[0], begins=_shown(begun)
                )
            file = files[0]
        self.relay.ensure_from(self._file(file), fresh=self.may_restart_relay)
        with self.relay.one_generation():
            begin = self.relay.locate(self._file(file), _LOCATE_SECONDS, self.stop)
            walk = self.relay.commits_from(begin, moment)
            start = self.relay.first_commit(walk, early, end, _LOCATE_SECONDS, self.stop)
            settled = start if exact else self.relay.first_commit(walk, moment, end, _LOCATE_SECONDS, self.stop)
            start = max(start, walk.certain or start)
            return StartPoint(
                self.relay.position_at(start), self.relay.position_at(settled) if settled > start else None
            )


def parse_past_time(session: Session, text: str, source: str) -> float:
    """A start time by the source's clock. Raises TIME_UNCLEAR, START_TOO_LATE and ``pymysql.MySQLError``."""
    moment = server_clock.parse_time(session, text, source)
    now = server_clock.now(session)
    if moment > now:
        raise errors.replicate.START_TOO_LATE(source=source, time=text, now=_shown(now))
    return moment


def has_commit_times(info: ServerInfo) -> bool:
    """Whether the server's binlog records when transactions committed (MySQL WL#7846, 8.0.1)."""
    return not info.is_mariadb and info.version >= _EXACT_FROM


def check_keys(source: str, given: str, tables: tuple[Table, ...]) -> None:
    """Raises START_NEEDS_KEY for a table without a key: a row of it that is applied again exists twice."""
    without = [table.full_name for table in tables if not table.key]
    if without:
        raise errors.replicate.START_NEEDS_KEY(source=source, time=given, tables=", ".join(without[:5]))


def _shown(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds")
