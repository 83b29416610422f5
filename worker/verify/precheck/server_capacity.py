"""Checks how many connections source and target allow, and the free disk space of the target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pymysql

from shardmerge.proto import config_pb2 as config
from shardmerge.proto import errors
from shardmerge.proto import worker_pb2 as pb
from shardmerge.worker.core.mysql.connection import Session, rows, text_of
from shardmerge.worker.core.mysql.server_errors import ErrorKind, errno_of, kind_of
from shardmerge.worker.verify.precheck.estimates import Connections, Size, at_source, at_target, shown_bytes
from shardmerge.worker.verify.precheck.findings import Checklist, failed, passed, variable, warned

_DISKS_UNKNOWN = (1109, 1146)
"""No such table (of information_schema): MariaDB without its plugin DISKS, MySQL."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """A server's limits of connections; 0: no limit. ``per_user``: for the account; ``used``: connections now."""

    allowed: int
    per_user: int
    used: int


def read_limits(session: Session) -> ConnectionLimits:
    """Raises ``pymysql.MySQLError``."""
    # TiDB lacks some of these variables, and 0 means no limit there.
    used = rows(session, "SHOW GLOBAL STATUS LIKE 'Threads\\_connected'")
    per_user = rows(session, "SHOW SESSION VARIABLES LIKE 'max\\_user\\_connections'")
    return ConnectionLimits(
        int(variable(session, "max_connections") or 0),
        int(text_of(per_user[0][1])) if per_user else 0,
        int(text_of(used[0][1])) if used else 0,
    )


def check_connections(
    checklist: Checklist,
    subtask: config.SubTaskConfig,
    family: Sequence[config.SubTaskConfig],
    source: Session | None,
    target: Session | None,
    *,
    locks: bool,
) -> None:
    """``family``: the subtasks of all of the task's sources. Another item reports a server that is None."""

    def find() -> Iterator[pb.CheckResult]:
        details: list[str] = []
        ends = (
            (source, f"source {checklist.source}", at_source(subtask, locks=locks)),
            (target, "target", at_target(family)),
        )
        for session, server, needed in ends:
            if session is None:
                continue
            limits = read_limits(session)
            found = connection_finding(checklist.source, server, needed, limits)
            if found is not None:
                yield found
            details.append(
                f"{server} up to {needed.count} of {limits.allowed or 'any number'}, {limits.used} taken now"
            )
        if details:
            yield passed("conn_number", checklist.source, "; ".join(details))

    checklist.run("conn_number", lambda: _failures_or_all(find()))


def _failures_or_all(found: Iterator[pb.CheckResult]) -> Iterator[pb.CheckResult]:
    """The failures and warnings; only without any, the passed result."""
    results = list(found)
    bad = [result for result in results if result.state != pb.CHECK_STATE_PASS]
    yield from bad or results


def connection_finding(
    source: str, server: str, needed: Connections, limits: ConnectionLimits
) -> pb.CheckResult | None:
    """The finding about the limits of one server; None if they suffice."""
    account = 0 < limits.per_user < needed.count
    details = {"server": server, "needed": needed.count, "parts": needed.parts, "allowed": limits.allowed}
    if account or 0 < limits.allowed < needed.count:
        limit = "the account's max_user_connections" if account else "max_connections"
        way_out = (
            f"ALTER USER … WITH MAX_USER_CONNECTIONS {2 * needed.count}; or raise max_user_connections."
            if account
            else f"SET GLOBAL max_connections = {2 * needed.count + limits.used};"
        )
        details |= {"limit": limit, "allowed": limits.per_user if account else limits.allowed}
        lower = " Or lower mydumpers.threads and syncers.worker-count."
        return failed("conn_number", source, errors.check_room.CONNECTIONS_TOO_FEW(**details, way_out=way_out + lower))
    if 0 < limits.allowed < limits.used + needed.count:
        way_out = f"SET GLOBAL max_connections = {2 * needed.count + limits.used}; or end what else is connected."
        return warned(
            "conn_number", source, errors.check_room.CONNECTIONS_TAKEN(**details, used=limits.used, way_out=way_out)
        )
    return None


def check_free_space(checklist: Checklist, target: Session, expected: Size) -> None:
    """``expected``: the size of the source's tables."""
    checklist.run("free_space", lambda: _free_space(checklist.source, target, expected))


def _free_space(source: str, target: Session, expected: Size) -> Iterator[pb.CheckResult]:
    path = variable(target, "datadir") or ""
    free = _free(target, path)
    held = f"the source's tables hold about {expected.rows} rows, {shown_bytes(expected.size)} with their indexes"
    if free is None:
        yield passed(
            "free_space", source, f"{held}; the target does not report its free disk through SQL: check it there"
        )
    elif free < expected.size:
        sizes = {"free": shown_bytes(free), "expected": shown_bytes(expected.size)}
        yield failed("free_space", source, errors.check_room.TARGET_DISK(path=path, **sizes))
    else:
        yield passed("free_space", source, f"{held}; the target has {shown_bytes(free)} free")


def _free(target: Session, path: str) -> int | None:
    """Free bytes on the disk of the target's data directory; None if the target does not report them.

    MariaDB reports them through its plugin DISKS (MariaDB Knowledge Base, "Information Schema DISKS Table"; sizes in
    KiB), to accounts with FILE.
    """
    try:
        found = rows(target, "SELECT Path, Available FROM information_schema.DISKS")
    except pymysql.MySQLError as error:
        if errno_of(error) in _DISKS_UNKNOWN or kind_of(errno_of(error)) is ErrorKind.PRIVILEGE:
            return None
        raise
    holding = [(text_of(mount), int(kib)) for mount, kib in found if _is_under(path, text_of(mount))]
    return max(holding, key=lambda pair: len(pair[0]))[1] << 10 if holding else None


def _is_under(path: str, mount: str) -> bool:
    return path == mount or path.startswith(mount.rstrip("/") + "/")
