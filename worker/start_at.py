"""Where incremental begins when it is not told a place: the source's oldest, or a moment.

By a moment: at the first group that committed at or after it. No such group is ever left out. MySQL 8 says exactly when
groups committed. Other binlogs only say when their statements began: a group that seems older by up to
``BLURRED_SECONDS`` may have committed at the moment or after it, so that replication begins so much earlier, and up to
the moment rows may be at the target already (``Beginning.settled``): there the lanes write as with safe-mode, which
brings a target that holds the state of that moment back to it. (Not before a DDL that proves what lies before it to be
older.) TiDB DM begins by the events' header times at any source, and writes its first minute as with safe-mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from proto import config_pb2, errors
from worker import source_time
from worker.connection import Endpoint, ServerInfo, Session, current_position, rows, text_of
from worker.position import SourcePosition
from worker.relay.by_time import file_times, last_before
from worker.relay.files import FIRST_BYTE
from worker.relay.relay import Relay
from worker.table import Table
from worker.unit import StopSignal

BLURRED_SECONDS = 600.0
"""By so much a commit may have come later than its binlog tells, where that tells no commit times: as long as the
statement ran that committed, and a replica was behind."""

_EXACT_FROM = (8, 0, 1)
_LOCATE_SECONDS = 600.0


class Beginning(NamedTuple):
    """``settled``: before this place the target may hold changes already; None: before none."""

    start: SourcePosition
    settled: SourcePosition | None


@dataclass(frozen=True, slots=True)
class Begin:
    """One subtask's question. ``alone``: nobody else needs the relay log as it is."""

    source: str
    endpoint: Endpoint
    session: Session
    info: ServerInfo
    relay: Relay
    alone: bool
    stop: StopSignal

    def at(self, given: config_pb2.StartAt) -> Beginning | None:
        """None: where the source's binlog ends now.

        Raises START_TOO_EARLY, START_TOO_LATE, TIME_UNCLEAR, what the relay raises, and ``pymysql.MySQLError``.
        """
        match given.WhichOneof("at"):
            case "earliest":
                return Beginning(self._file(self._files()[0]), None)
            case "time":
                return self._by_time(given.time)
            case _:
                return None

    def _files(self) -> list[str]:
        current_position(self.session, self.info)  # raises NO_BINLOG
        return [text_of(row[0]) for row in rows(self.session, "SHOW BINARY LOGS")]

    def _file(self, name: str) -> SourcePosition:
        return SourcePosition(name, FIRST_BYTE, server=self.info.identity)

    def _by_time(self, text: str) -> Beginning:
        moment = past_moment(self.session, text, self.source)
        end = current_position(self.session, self.info)
        exact = tells_commit_times(self.info)
        early = moment if exact else moment - BLURRED_SECONDS
        files = self._files()
        file = last_before(files, early, lambda name: file_times(self.source, self.endpoint, name))
        if file is None:
            begun = file_times(self.source, self.endpoint, files[0]).begun
            if begun > moment:
                raise errors.replicate.START_TOO_EARLY(
                    source=self.source, time=text, file=files[0], begins=_shown(begun)
                )
            file = files[0]
        self.relay.ensure_from(self._file(file), fresh=self.alone)
        with self.relay.one_generation():
            begin = self.relay.locate(self._file(file), _LOCATE_SECONDS, self.stop)
            walk = self.relay.commits_from(begin, moment)
            start = self.relay.first_commit(walk, early, end, _LOCATE_SECONDS, self.stop)
            settled = start if exact else self.relay.first_commit(walk, moment, end, _LOCATE_SECONDS, self.stop)
            start = max(start, walk.certain or start)
            return Beginning(
                self.relay.position_at(start), self.relay.position_at(settled) if settled > start else None
            )


def past_moment(session: Session, text: str, source: str) -> float:
    """What a start time means at the source. Raises TIME_UNCLEAR, START_TOO_LATE and ``pymysql.MySQLError``."""
    moment = source_time.moment(session, text, source)
    now = source_time.now(session)
    if moment > now:
        raise errors.replicate.START_TOO_LATE(source=source, time=text, now=_shown(now))
    return moment


def tells_commit_times(info: ServerInfo) -> bool:
    """Whether the server's binlog says when its transactions committed (MySQL WL#7846, 8.0.1)."""
    return not info.is_mariadb and info.version >= _EXACT_FROM


def check_keys(source: str, given: str, tables: tuple[Table, ...]) -> None:
    """Raises START_NEEDS_KEY: a row without a key that is applied again is there twice."""
    without = [table.full_name for table in tables if not table.key]
    if without:
        raise errors.replicate.START_NEEDS_KEY(source=source, time=given, tables=", ".join(without[:5]))


def _shown(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(sep=" ", timespec="seconds")
