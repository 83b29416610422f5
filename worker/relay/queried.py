"""The QUERY event of a statement, read again from the relay log: its session is not in the index."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from proto import errors
from worker.binlog.events import HEADER_SIZE, FormatDescription, QueryEvent, parse_header
from worker.connection import parse_version
from worker.relay.files import relay_path
from worker.relay.log import RelayLog
from worker.relay.model import Statement
from worker.relay.querytext import parse
from worker.relay.segment import read_description


@dataclass(frozen=True, slots=True)
class Queried:
    """``is_mariadb``, ``version``: of the server that has logged it."""

    event: QueryEvent
    is_mariadb: bool
    version: tuple[int, int, int]


def query_at(log: RelayLog, statement: Statement) -> Queried:
    """The event of ``statement``, which must not have been purged (a lane's checkpoint lies before it).

    Raises OFFSET_PURGED, RELAY_DAMAGED, decode.MALFORMED_EVENT.
    """
    number, at = statement.offset.segment, statement.offset.byte
    reader = log.enter_reader(number)
    path = relay_path(log.directory, number)
    try:
        file = os.open(path, os.O_RDONLY)
        try:
            description = FormatDescription.parse(read_description(log.directory, number), log.source)
            head = os.pread(file, HEADER_SIZE, at)
            header = parse_header(head, 0, log.source)
            event = os.pread(file, header.size, at)
        finally:
            os.close(file)
    except OSError as error:
        raise errors.relay.RELAY_DAMAGED(
            source=log.source, path=path, reason=error.strerror or type(error).__name__, directory=log.directory
        ) from error
    finally:
        log.leave_reader(reader)
    found = parse(event, header.type, description.checksum, log.source)
    version = parse_version(description.server_version)
    if description.is_mariadb and version >= _SAYS_EXPLICIT:
        variables = replace(found.variables, explicit_timestamp=found.variables.explicit_flag)
        found = replace(found, variables=variables)
    return Queried(found, description.is_mariadb, version)


_SAYS_EXPLICIT = (10, 8, 0)
"""The MariaDB whose statements say explicit_defaults_for_timestamp."""
