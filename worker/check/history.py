"""How long the source keeps its binary log, how fast that grows, and what its GTID sets lack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from proto import errors
from proto import worker_pb2 as pb
from worker import source_time
from worker.check.estimates import shown_seconds
from worker.check.findings import Checklist, failed, passed, some, variable, warned
from worker.check.source import SourceView
from worker.connection import Endpoint, rows, text_of
from worker.position import SourcePosition
from worker.relay.by_time import file_times
from worker.relay.gtid import GtidSet
from worker.relay.source_state import source_state

LEAST_RETENTION = 6 * 3600.0
"""Seconds: a worker may be away for a night's upgrade, whatever a copy takes."""

_TELLING_SECONDS = 60.0
"""A binary log younger than this says nothing of its growth."""


@dataclass(frozen=True, slots=True)
class Binlogs:
    """The source's binary logs. ``age``: seconds since the oldest was begun; ``purged``: older ones there were.

    ``keeps``: seconds after which the server removes one by itself, 0: never.
    """

    size: int
    age: float
    purged: bool
    keeps: float

    @property
    def bytes_per_second(self) -> float:
        return self.size / self.age if self.age >= _TELLING_SECONDS else 0.0


def look_at_binlogs(view: SourceView) -> Binlogs | None:
    """None without a binary log. Raises ``pymysql.MySQLError`` and what a dump raises."""
    if not view.info.log_bin:
        return None
    files = [(text_of(row[0]), int(row[1])) for row in rows(view.session, "SHOW BINARY LOGS")]
    first = files[0][0]
    begun = file_times(view.source_id, Endpoint.from_proto(getattr(view.config, "from")), first).begun
    return Binlogs(
        size=sum(size for _, size in files),
        age=max(source_time.now(view.session) - begun, 0.0),
        purged=SourcePosition(first, 0).file_order()[0] > 1,
        keeps=_keeps(view),
    )


def _keeps(view: SourceView) -> float:
    """binlog_expire_logs_seconds (MySQL 8, MariaDB 10.6; 0: expire_logs_days, if there is that), else days."""
    if not _expires(view):
        return 0.0
    seconds = float(variable(view.session, "binlog_expire_logs_seconds") or 0)
    return seconds or 86400.0 * float(variable(view.session, "expire_logs_days") or 0)


def _expires(view: SourceView) -> bool:
    # MySQL 8.0.29 can switch it off as a whole.
    return (variable(view.session, "binlog_expire_logs_auto_purge") or "ON").upper() not in ("0", "OFF")


def check_retention(checklist: Checklist, view: SourceView, copy_seconds: float) -> Binlogs | None:
    """What it has learnt of the binary logs; None: nothing."""
    learnt: list[Binlogs] = []

    def find() -> Iterator[pb.CheckResult]:
        binlogs = look_at_binlogs(view)
        if binlogs is None:
            return
        learnt.append(binlogs)
        needed = max(copy_seconds, LEAST_RETENTION)
        kept, way_out = too_short(binlogs, needed)
        if kept:
            told = f"{shown_seconds(copy_seconds)} ({shown_seconds(needed)} are wanted at least)"
            found = errors.check_room.BINLOG_RETENTION(source=view.source_id, kept=kept, needed=told, way_out=way_out)
            yield warned("binlog_retention", view.source_id, found)
            return
        keeps = f"for {shown_seconds(binlogs.keeps)}" if binlogs.keeps else "until they are purged by hand"
        yield passed(
            "binlog_retention", view.source_id, f"kept {keeps}; the copy may take {shown_seconds(copy_seconds)}"
        )

    checklist.run("binlog_retention", find, privilege_of="replication_privilege")
    return learnt[0] if learnt else None


def too_short(binlogs: Binlogs, needed: float) -> tuple[str, str]:
    """What is too short, and what to do; ("", "") when nothing is. Pure.

    By the server's setting; and by what it shows: where older files are gone and the oldest is young, somebody else
    purges them, whatever the setting says (managed servers do).
    """
    if 0 < binlogs.keeps < needed:
        wanted = int(max(2 * needed, 86400))
        return (
            f"the server removes its binary logs after {shown_seconds(binlogs.keeps)}",
            f"SET GLOBAL binlog_expire_logs_seconds = {wanted}; (before MySQL 8.0 and MariaDB 10.6: expire_logs_days = "
            f"{-(-wanted // 86400)})",
        )
    if binlogs.purged and binlogs.age < needed:
        return (
            f"its oldest binary log was begun {shown_seconds(binlogs.age)} ago and older ones are gone",
            "keep them for longer where they are purged: by a job of yours, or by the provider's own setting (on RDS "
            "mysql.rds_set_configuration('binlog retention hours', …)).",
        )
    return "", ""


def check_gtids(checklist: Checklist, view: SourceView, start: SourcePosition, key: str) -> None:
    """``start``: as configured, empty when nothing is; ``key``: where the user wrote it."""
    checklist.run("gtid_gaps", lambda: _gtids(view, start, key), privilege_of="replication_privilege")


def _gtids(view: SourceView, start: SourcePosition, key: str) -> Iterator[pb.CheckResult]:
    source = view.source_id
    if not view.info.log_bin:
        return
    state = source_state(view.session, view.info, source, Endpoint.from_proto(getattr(view.config, "from")))
    if not state.gtids:
        yield passed("gtid_gaps", source, "the source has no GTIDs: its relay goes by files alone")
        return
    executed = GtidSet(state.executed)
    if start.gtid_set:
        missing = executed.never_had(GtidSet(start.gtid_set))
        if missing:
            unknown = errors.check_room.GTID_UNKNOWN(source=source, key=key, gtid_set=start.gtid_set, missing=missing)
            yield failed("gtid_gaps", source, unknown)
        holes = GtidSet(start.gtid_set).holes()
        if holes:
            way_out = (
                "Nothing to do if a replica told it that commits in another order: what the holes hold is applied."
            )
            whose = f"{key} {start.gtid_set}"
            told = errors.check_room.GTID_HOLES(source=source, whose=whose, holes=some(holes), way_out=way_out)
            yield warned("gtid_gaps", source, told)
    holes = executed.holes()
    if holes:
        way_out = (
            "The transactions may come later: a source that is a replica and commits in another order than its own "
            "source (set replica_preserve_commit_order=ON), or that was told to skip them. After a fail-over to a "
            "server that has them they are applied: compare the target then."
        )
        told = errors.check_room.GTID_HOLES(
            source=source, whose="the source's executed set", holes=some(holes), way_out=way_out
        )
        yield warned("gtid_gaps", source, told)
