"""Checks a source server as a whole: version, settings, privileges, binary log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pymysql

from shardmerge.proto import config_pb2 as config
from shardmerge.proto import errors
from shardmerge.proto import worker_pb2 as pb
from shardmerge.worker.core.mysql.connection import (
    Endpoint,
    ServerInfo,
    Session,
    position_statement,
    rows,
    server_info,
    text_of,
)
from shardmerge.worker.core.mysql.server_errors import ErrorKind, errno_of, kind_of, reason_of
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.relay.fetch.source_state import source_state
from shardmerge.worker.verify.precheck.findings import Checklist, abbreviated, failed, variable, warned
from shardmerge.worker.verify.precheck.source.grants import Grants, parse_grants

_OLDEST = {"mysql": (5, 7, 0), "mariadb": (10, 2, 0)}
_NEWEST_TESTED = {"mysql": (9, 99, 0), "mariadb": (12, 99, 0)}
REPLICATION = ("REPLICATION SLAVE", "REPLICATION CLIENT")
_WRONG_OFFSET = 1220  # ER_ERROR_WHEN_EXECUTING_COMMAND
_OFF = ("0", "OFF", "FALSE", "")


@dataclass(frozen=True, slots=True)
class ConnectedSource:
    """A connected source, with the facts that several checks need."""

    config: config.SourceConfig
    session: Session
    info: ServerInfo
    grants: Grants

    @property
    def source_id(self) -> str:
        return self.config.source_id


def open_source(source: config.SourceConfig, session: Session) -> ConnectedSource:
    """Read the facts that all checks need. Raises ``pymysql.MySQLError``."""
    return ConnectedSource(source, session, server_info(session), read_grants(session))


def read_grants(session: Session) -> Grants:
    """The account's privileges, those of its active roles included. Raises ``pymysql.MySQLError``."""
    account = text_of(rows(session, "SELECT CURRENT_USER()")[0][0])
    statement = "SHOW GRANTS"
    if "mariadb" not in text_of(rows(session, "SELECT VERSION()")[0][0]).lower():
        # MySQL lists a role's privileges only if the statement names the role; MariaDB always shows both.
        try:
            roles = text_of(rows(session, "SELECT CURRENT_ROLE()")[0][0])
        except pymysql.MySQLError as error:
            if kind_of(errno_of(error)) is not ErrorKind.STATEMENT:
                raise
            roles = ""  # MySQL 5.7 has no roles
        if roles and roles.upper() != "NONE":
            statement = f"SHOW GRANTS FOR CURRENT_USER() USING {roles}"
    return parse_grants(account, (text_of(line) for (line,) in rows(session, statement)))


def check_server(checklist: Checklist, view: ConnectedSource) -> None:
    """Run every check that needs no task."""
    checklist.run("version", lambda: _version(view))
    checklist.run("server_id", lambda: _server_id(view))
    checklist.run("binlog_enable", lambda: _binlog_enable(view))
    checklist.run("binlog_format", lambda: _binlog_format(view))
    checklist.run("binlog_row_image", lambda: _binlog_row_image(view))
    checklist.run("replication_privilege", lambda: _replication_privilege(view))


def _version(view: ConnectedSource) -> Iterator[pb.CheckResult]:
    source, info = view.source_id, view.info
    if info.version < _OLDEST[info.flavor]:
        yield failed("version", source, errors.check.SOURCE_VERSION(source=source, version=info.text))
    elif info.version > _NEWEST_TESTED[info.flavor]:
        yield warned("version", source, errors.check.UNTESTED_VERSION(source=source, version=info.text))
    wanted = view.config.flavor.lower()
    if wanted not in ("", "auto", info.flavor):
        yield failed(
            "version",
            source,
            errors.check.FLAVOR(source=source, wanted=wanted, version=info.text, found=info.flavor),
        )


def _server_id(view: ConnectedSource) -> Iterator[pb.CheckResult]:
    source = view.source_id
    if view.info.server_id == 0:
        yield failed(
            "server_id",
            source,
            errors.check.SERVER_ID(
                source=source,
                reason="server_id is 0, with which a server accepts no replica",
                way_out="Set server_id to a number from 1 in the source server's configuration file and restart it.",
            ),
        )
    elif view.config.server_id == view.info.server_id:
        yield failed(
            "server_id",
            source,
            errors.check.SERVER_ID(
                source=source,
                reason=f"`server-id` {view.config.server_id} is the source server's own",
                way_out="Choose a number that no server of the replication topology has, or leave `server-id` out.",
            ),
        )


def _binlog_enable(view: ConnectedSource) -> Iterator[pb.CheckResult]:
    source = view.source_id
    if not view.info.log_bin:
        yield failed("binlog_enable", source, errors.check.BINLOG_OFF(source=source))
        return
    for name in ("log_replica_updates", "log_slave_updates"):
        value = variable(view.session, name)
        if value is not None:
            if value.upper() in _OFF and _replicates(view):
                yield warned("binlog_enable", source, errors.check.REPLICATED_CHANGES(source=source, variable=name))
            return


def _replicates(view: ConnectedSource) -> bool:
    """Whether the source is (or was) a replica itself, as far as this user may know."""
    if view.info.is_mariadb:
        # Reading these two needs no privilege.
        running = rows(view.session, "SHOW GLOBAL STATUS LIKE 'Slaves\\_running'")
        if running and text_of(running[0][1]) != "0":
            return True
        return bool(variable(view.session, "gtid_slave_pos"))
    statement = "SHOW REPLICA STATUS" if view.info.version >= (8, 0, 22) else "SHOW SLAVE STATUS"
    try:
        return bool(rows(view.session, statement))
    except pymysql.MySQLError as error:
        if kind_of(errno_of(error)) is not ErrorKind.PRIVILEGE:
            raise
        return False


def _binlog_format(view: ConnectedSource) -> Iterator[pb.CheckResult]:
    value = variable(view.session, "binlog_format")
    # None: a server that knows only ROW.
    if value is not None and value.upper() != "ROW":
        yield failed(
            "binlog_format",
            view.source_id,
            errors.check.BINLOG_FORMAT(source=view.source_id, value=value),
        )


def _binlog_row_image(view: ConnectedSource) -> Iterator[pb.CheckResult]:
    source = view.source_id
    value = variable(view.session, "binlog_row_image")
    if value is not None and value.upper() != "FULL":
        yield failed(
            "binlog_row_image",
            source,
            errors.check.BINLOG_ROW_IMAGE(source=source, variable="binlog_row_image", value=value, needed="FULL"),
        )


def _replication_privilege(view: ConnectedSource) -> Iterator[pb.CheckResult]:
    missing = view.grants.lacks(REPLICATION)
    if missing:
        yield failed(
            "replication_privilege",
            view.source_id,
            errors.check.PRIVILEGE(
                server=f"source {view.source_id}",
                user=view.grants.account,
                missing=", ".join(missing),
                grant=view.grants.statement(missing, "*.*"),
            ),
        )


def check_filters(checklist: Checklist, view: ConnectedSource, schemas: Iterable[str]) -> None:
    """Check the server's binlog_do_db and binlog_ignore_db against the schemas of the task."""
    checklist.run("binlog_db", lambda: _filters(view, sorted(schemas)))


def _filters(view: ConnectedSource, schemas: list[str]) -> Iterator[pb.CheckResult]:
    if not view.info.log_bin:
        return
    found = rows(view.session, position_statement(view.info))
    if not found:
        return
    logged, ignored = (_names(text_of(value)) for value in found[0][2:4])
    for option, out in (
        ("binlog_do_db", [schema for schema in schemas if logged and schema.lower() not in logged]),
        ("binlog_ignore_db", [schema for schema in schemas if schema.lower() in ignored]),
    ):
        if out:
            yield failed(
                "binlog_db",
                view.source_id,
                errors.check.BINLOG_FILTERED(source=view.source_id, option=option, schemas=abbreviated(out)),
            )


def _names(text: str) -> frozenset[str]:
    return frozenset(name.strip().lower() for name in text.split(",") if name.strip())


def check_position(checklist: Checklist, view: ConnectedSource, position: SourcePosition, key: str) -> None:
    """Check whether the source still has ``position``; ``key``: the key that configures it."""
    if position.file or position.gtid_set:
        checklist.run("meta_position", lambda: _position(view, position, key))


def _position(view: ConnectedSource, position: SourcePosition, key: str) -> Iterator[pb.CheckResult]:
    if not view.info.log_bin:
        return
    logs = {text_of(row[0]): int(row[1]) for row in rows(view.session, "SHOW BINARY LOGS")}
    reason = ""
    if position.file:
        reason = _file_reason(view, position, logs)
    elif not view.info.is_mariadb:
        [(purged,)] = rows(
            view.session,
            "SELECT GTID_SUBTRACT(@@GLOBAL.gtid_purged, %s)",
            (position.gtid_set,),
        )
        if text_of(purged):
            reason = f"transactions {text_of(purged)} are purged"
    else:
        state = source_state(view.session, view.info, view.source_id, Endpoint.from_proto(getattr(view.config, "from")))
        missing = state.missing_after(position.gtid_set)
        if missing:
            reason = f"transactions from {missing} on are purged"
    if reason:
        names = list(logs) or ["none"]
        yield failed(
            "meta_position",
            view.source_id,
            errors.check.POSITION_GONE(
                source=view.source_id,
                key=key,
                position=position if position.file else position.gtid_set,
                first=names[0],
                last=names[-1],
                reason=reason,
            ),
        )


def _file_reason(view: ConnectedSource, position: SourcePosition, logs: dict[str, int]) -> str:
    size = logs.get(position.file)
    if size is None:
        return "there is no such file"
    if position.pos > size:
        return f"the file has {size} bytes"
    if position.pos <= 4 or position.pos == size:
        return ""
    try:
        found = rows(view.session, f"SHOW BINLOG EVENTS IN %s FROM {position.pos} LIMIT 1", (position.file,))
    except pymysql.MySQLError as error:
        if errno_of(error) != _WRONG_OFFSET:
            raise
        return reason_of(error)
    # Log_name, Pos, …: MySQL 8 and newer continue at the next event.
    begins = int(found[0][1]) if found else size
    return "" if begins == position.pos else f"no event begins there, the next one does at {begins}"
