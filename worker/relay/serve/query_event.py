"""Reads the QUERY event of a statement again from the relay log, because its session is not in the index."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from shardmerge.proto import errors
from shardmerge.worker.binlog.events import HEADER_SIZE, parse_header
from shardmerge.worker.binlog.query_text import QueryEvent, parse
from shardmerge.worker.core.mysql.target_dialect import parse_version
from shardmerge.worker.relay.log.files import relay_path
from shardmerge.worker.relay.log.relay_log import RelayLog
from shardmerge.worker.relay.log.segment import parsed_description
from shardmerge.worker.relay.model import Statement


@dataclass(frozen=True, slots=True)
class LoggedQuery:
    """A statement's event. ``is_mariadb``, ``version``: of the server that logged it."""

    event: QueryEvent
    is_mariadb: bool
    version: tuple[int, int, int]


def read_query_event(log: RelayLog, statement: Statement) -> LoggedQuery:
    """The event of ``statement``, which must not have been purged (a lane's checkpoint is before it).

    Raises OFFSET_PURGED, RELAY_DAMAGED, decode.MALFORMED_EVENT.
    """
    number, at = statement.offset.segment, statement.offset.byte
    reader = log.enter_reader(number)
    path = relay_path(log.directory, number)
    try:
        file = os.open(path, os.O_RDONLY)
        try:
            description = parsed_description(log.directory, number, log.source)
            head = os.pread(file, HEADER_SIZE, at)
            header = parse_header(head, 0, log.source)
            event = os.pread(file, header.size, at)
        finally:
            os.close(file)
    except OSError as error:
        raise log.lost() or errors.relay.RELAY_DAMAGED(
            source=log.source, path=path, reason=error.strerror or type(error).__name__, directory=log.directory
        ) from error
    finally:
        log.leave_reader(reader)
    found = parse(event, header.type, description.checksum, log.source)
    version = parse_version(description.server_version)
    if description.is_mariadb and version >= _HAS_EXPLICIT_FLAG:
        variables = replace(found.variables, explicit_timestamp=found.variables.explicit_flag)
        found = replace(found, variables=variables)
    return LoggedQuery(found, description.is_mariadb, version)


_HAS_EXPLICIT_FLAG = (10, 8, 0)
"""The first MariaDB whose statements contain explicit_defaults_for_timestamp."""
