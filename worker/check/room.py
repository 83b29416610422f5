"""Connections that source and target allow, and the disk under the target's tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pymysql

from proto import config_pb2 as config
from proto import errors
from proto import worker_pb2 as pb
from worker.check.estimates import Connections, Size, at_source, at_target, shown_bytes
from worker.check.findings import Checklist, failed, passed, variable, warned
from worker.connection import Session, rows, text_of
from worker.trouble import Trouble, errno_of, trouble

_DISKS_UNKNOWN = (1109, 1146)
"""No such table (of information_schema): MariaDB without its plugin DISKS, MySQL."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server says of its connections; 0: no limit. ``per_user``: the account's own; ``used``: now."""

    allowed: int
    per_user: int
    used: int


def read_limits(session: Session) -> Limits:
    """Raises ``pymysql.MySQLError``."""
    # TiDB does not have all of them, and takes 0 for no limit.
    used = rows(session, "SHOW GLOBAL STATUS LIKE 'Threads\\_connected'")
    per_user = rows(session, "SHOW SESSION VARIABLES LIKE 'max\\_user\\_connections'")
    return Limits(
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
    """``family``: the subtasks of all of the task's sources. A server that is None is told of elsewhere."""

    def find() -> Iterator[pb.CheckResult]:
        told: list[str] = []
        ends = (
            (source, f"source {checklist.source}", at_source(subtask, locks=locks)),
            (target, "target", at_target(family)),
        )
        for session, server, needed in ends:
            if session is None:
                continue
            limits = read_limits(session)
            found = judged(checklist.source, server, needed, limits)
            if found is not None:
                yield found
            told.append(f"{server} up to {needed.count} of {limits.allowed or 'any number'}, {limits.used} taken now")
        if told:
            yield passed("conn_number", checklist.source, "; ".join(told))

    checklist.run("conn_number", lambda: _worst(find()))


def _worst(found: Iterator[pb.CheckResult]) -> Iterator[pb.CheckResult]:
    """What passed is told only where nothing else is."""
    results = list(found)
    bad = [result for result in results if result.state != pb.CHECK_STATE_PASS]
    yield from bad or results


def judged(source: str, server: str, needed: Connections, limits: Limits) -> pb.CheckResult | None:
    """What is wrong with the limits of one server; None: nothing."""
    account = 0 < limits.per_user < needed.count
    said = {"server": server, "needed": needed.count, "parts": needed.parts, "allowed": limits.allowed}
    if account or 0 < limits.allowed < needed.count:
        limit = "the account's max_user_connections" if account else "max_connections"
        way_out = (
            f"ALTER USER … WITH MAX_USER_CONNECTIONS {2 * needed.count}; or raise max_user_connections."
            if account
            else f"SET GLOBAL max_connections = {2 * needed.count + limits.used};"
        )
        said |= {"limit": limit, "allowed": limits.per_user if account else limits.allowed}
        lower = " Or lower mydumpers.threads and syncers.worker-count."
        return failed("conn_number", source, errors.check_room.CONNECTIONS_TOO_FEW(**said, way_out=way_out + lower))
    if 0 < limits.allowed < limits.used + needed.count:
        way_out = f"SET GLOBAL max_connections = {2 * needed.count + limits.used}; or end what else is connected."
        return warned(
            "conn_number", source, errors.check_room.CONNECTIONS_TAKEN(**said, used=limits.used, way_out=way_out)
        )
    return None


def check_free_space(checklist: Checklist, target: Session, expected: Size) -> None:
    """``expected``: what the source's tables hold."""
    checklist.run("free_space", lambda: _free_space(checklist.source, target, expected))


def _free_space(source: str, target: Session, expected: Size) -> Iterator[pb.CheckResult]:
    path = variable(target, "datadir") or ""
    free = _free(target, path)
    told = f"the source's tables hold about {expected.rows} rows, {shown_bytes(expected.size)} with their indexes"
    if free is None:
        yield passed(
            "free_space", source, f"{told}; the target does not tell its free disk through SQL: see to it there"
        )
    elif free < expected.size:
        sizes = {"free": shown_bytes(free), "expected": shown_bytes(expected.size)}
        yield failed("free_space", source, errors.check_room.TARGET_DISK(path=path, **sizes))
    else:
        yield passed("free_space", source, f"{told}; the target has {shown_bytes(free)} free")


def _free(target: Session, path: str) -> int | None:
    """Bytes on the disk of the target's data directory; None where the target does not tell.

    MariaDB tells by its plugin DISKS (MariaDB Knowledge Base, "Information Schema DISKS Table"; sizes in KiB), to
    accounts with FILE.
    """
    try:
        found = rows(target, "SELECT Path, Available FROM information_schema.DISKS")
    except pymysql.MySQLError as error:
        if errno_of(error) in _DISKS_UNKNOWN or trouble(errno_of(error)) is Trouble.PRIVILEGE:
            return None
        raise
    holding = [(text_of(mount), int(kib)) for mount, kib in found if _is_under(path, text_of(mount))]
    return max(holding, key=lambda pair: len(pair[0]))[1] << 10 if holding else None


def _is_under(path: str, mount: str) -> bool:
    return path == mount or path.startswith(mount.rstrip("/") + "/")
