"""Checks how long the source keeps its binary logs, how fast they grow, and which GTIDs its sets lack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from shardmerge.proto import errors
from shardmerge.proto import worker_pb2 as pb
from shardmerge.worker.binlog.gtid_set import GtidSet
from shardmerge.worker.core.mysql import server_clock
from shardmerge.worker.core.mysql.connection import Endpoint, rows, text_of
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.relay.fetch.file_times import file_times
from shardmerge.worker.relay.fetch.source_state import source_state
from shardmerge.worker.verify.precheck.estimates import shown_seconds
from shardmerge.worker.verify.precheck.findings import Checklist, abbreviated, failed, passed, variable, warned
from shardmerge.worker.verify.precheck.source.server import ConnectedSource

LEAST_RETENTION = 6 * 3600.0
"""Seconds. Independent of the copy: a worker may be down for a night's upgrade."""

_LEAST_AGE_SECONDS = 60.0
"""The growth of a binary log that is younger cannot be estimated."""


@dataclass(frozen=True, slots=True)
class Binlogs:
    """The source's binary logs. ``age``: seconds since the oldest was begun; ``purged``: older ones were removed.

    ``keeps``: seconds after which the server removes one by itself, 0: never.
    """

    size: int
    age: float
    purged: bool
    keeps: float

    @property
    def bytes_per_second(self) -> float:
        return self.size / self.age if self.age >= _LEAST_AGE_SECONDS else 0.0


def read_binlogs(view: ConnectedSource) -> Binlogs | None:
    """None without a binary log. Raises ``pymysql.MySQLError`` and what a dump raises."""
    if not view.info.log_bin:
        return None
    files = [(text_of(row[0]), int(row[1])) for row in rows(view.session, "SHOW BINARY LOGS")]
    first = files[0][0]
    begun = file_times(view.source_id, Endpoint.from_proto(getattr(view.config, "from")), first).begun
    return Binlogs(
        size=sum(size for _, size in files),
        age=max(server_clock.now(view.session) - begun, 0.0),
        purged=SourcePosition(first, 0).file_order()[0] > 1,
        keeps=_keeps(view),
    )


def _keeps(view: ConnectedSource) -> float:
    """binlog_expire_logs_seconds (MySQL 8, MariaDB 10.6; 0: expire_logs_days, if there is that), else days."""
    if not _expires(view):
        return 0.0
    seconds = float(variable(view.session, "binlog_expire_logs_seconds") or 0)
    return seconds or 86400.0 * float(variable(view.session, "expire_logs_days") or 0)


def _expires(view: ConnectedSource) -> bool:
    # MySQL 8.0.29 can switch it off as a whole.
    return (variable(view.session, "binlog_expire_logs_auto_purge") or "ON").upper() not in ("0", "OFF")


def check_retention(checklist: Checklist, view: ConnectedSource, copy_seconds: float) -> Binlogs | None:
    """Run the check; returns the source's binary logs, or None if they could not be read."""
    learnt: list[Binlogs] = []

    def find() -> Iterator[pb.CheckResult]:
        binlogs = read_binlogs(view)
        if binlogs is None:
            return
        learnt.append(binlogs)
        needed = max(copy_seconds, LEAST_RETENTION)
        kept, way_out = retention_shortage(binlogs, needed)
        if kept:
            wanted = f"{shown_seconds(copy_seconds)} ({shown_seconds(needed)} are wanted at least)"
            found = errors.check_room.BINLOG_RETENTION(source=view.source_id, kept=kept, needed=wanted, way_out=way_out)
            yield warned("binlog_retention", view.source_id, found)
            return
        keeps = f"for {shown_seconds(binlogs.keeps)}" if binlogs.keeps else "until they are purged by hand"
        yield passed(
            "binlog_retention", view.source_id, f"kept {keeps}; the copy may take {shown_seconds(copy_seconds)}"
        )

    checklist.run("binlog_retention", find, privilege_of="replication_privilege")
    return learnt[0] if learnt else None


def retention_shortage(binlogs: Binlogs, needed: float) -> tuple[str, str]:
    """Why the retention is too short, and the way out; ("", "") if it is not. Pure.

    Decided by the server's setting and by its files: if older files are gone and the oldest is young, something else
    purges them, whatever the setting (managed servers do this).
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


def check_gtids(checklist: Checklist, view: ConnectedSource, start: SourcePosition, key: str) -> None:
    """``start``: as configured, empty without one; ``key``: the key that configures it."""
    checklist.run("gtid_gaps", lambda: _gtids(view, start, key), privilege_of="replication_privilege")


def _gtids(view: ConnectedSource, start: SourcePosition, key: str) -> Iterator[pb.CheckResult]:
    source = view.source_id
    if not view.info.log_bin:
        return
    state = source_state(view.session, view.info, source, Endpoint.from_proto(getattr(view.config, "from")))
    if not state.gtids:
        yield passed("gtid_gaps", source, "the source has no GTIDs: its relay uses file positions only")
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
                "Nothing to do if it comes from a replica that commits in another order: the transactions in the holes "
                "are applied."
            )
            whose = f"{key} {start.gtid_set}"
            found = errors.check_room.GTID_HOLES(source=source, whose=whose, holes=abbreviated(holes), way_out=way_out)
            yield warned("gtid_gaps", source, found)
    holes = executed.holes()
    if holes:
        way_out = (
            "The transactions may come later: a source that is a replica and commits in another order than its own "
            "source (set replica_preserve_commit_order=ON), or that was configured to skip them. After a fail-over to "
            "a server that has them they are applied: compare the target then."
        )
        found = errors.check_room.GTID_HOLES(
            source=source, whose="the source's executed set", holes=abbreviated(holes), way_out=way_out
        )
        yield warned("gtid_gaps", source, found)
