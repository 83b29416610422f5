"""Checks whether a source may be read from another address, before the address is stored.

The check proves one of two things. The same server answers there, and its binlog continues where the relay log ends. Or
another server can continue by GTID: it has executed all transactions that were read, has purged none of those that
follow, and has written none itself in between. Then worker/relay/fetch/dump_start.py continues there; it checks again
what may have changed since.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pymysql

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.mysql.connection import (
    Endpoint,
    ServerInfo,
    Session,
    Side,
    coded_errors,
    connect,
    rows,
    server_info,
    text_of,
)
from shardmerge.worker.core.mysql.server_errors import ErrorKind, errno_of, kind_of, reason_of
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.relay.fetch.dump_start import SourceState
from shardmerge.worker.relay.fetch.end_watch import ends_before
from shardmerge.worker.relay.fetch.errant_gtids import (
    Errant,
    KnownGtids,
    KnownMariadb,
    KnownMysql,
    errant,
    gtid_of,
    list_of,
)
from shardmerge.worker.relay.fetch.source_state import gtid_set_at, source_state
from shardmerge.worker.relay.fetch.stored_tail import NOT_THERE, lost_event
from shardmerge.worker.relay.log.files import FIRST_BYTE
from shardmerge.worker.relay.log.relay_log import RelayLog

_ANSWER_SECONDS = 60.0
_SCAN_SECONDS = 60.0
_LINES = 5000
_FIRST_LINES = 4
_WRONG_OFFSET = 1220  # ER_ERROR_WHEN_EXECUTING_COMMAND


@dataclass(frozen=True, slots=True)
class AddressProof:
    """``server``: the server that the relay log is written from, "" for none yet; ``same``: it answers at the new
    address."""

    server: str
    same: bool
    text: str


def prove(log: RelayLog, lowest: SourcePosition | None, endpoint: Endpoint) -> AddressProof:
    """Prove that the source may be read at ``endpoint``. ``lowest``: the lowest position of a task, for a relay log
    that has not begun.

    Raises SWITCH_OTHER_BINLOG, SWITCH_ERRANT, SWITCH_UNPROVEN, SWITCH_LACKS_GTIDS, and the errors of
    shardmerge.worker.core.mysql.server_errors.to_coded.
    """
    generation = log.generation
    position = log.head().position if generation is not None else lowest
    if position is None or not (position.file or position.gtid_set):
        return AddressProof("", same=False, text="nothing was read yet")
    server = position.server or (generation.server if generation is not None else "")
    states = (generation.parts[-1].executed if generation is not None else "", log.binlog_state())
    session = connect(endpoint, Side.SOURCE, name=log.source, read_timeout=_ANSWER_SECONDS)
    with session, coded_errors(endpoint, Side.SOURCE, log.source):
        info = server_info(session)
        state = source_state(session, info, log.source, endpoint)
        asked = _Asked(log, endpoint, session, info, state, position, server)
        if server in ("", state.server) and position.file:
            asked.check_same()
            return AddressProof(server, same=True, text=f"it is the same server, {state.server}")
        asked.check_other(states)
    return AddressProof(
        server, same=False, text=f"{state.server} has executed all that was read from {server}, and continues by GTID"
    )


@dataclass(frozen=True, slots=True)
class _Asked:
    log: RelayLog
    endpoint: Endpoint
    session: Session
    info: ServerInfo
    state: SourceState
    position: SourcePosition
    before: str

    def check_same(self) -> None:
        """The server reports the identity of the one that was read: its binlog must be the same, too."""
        end, state, position = self.state.end, self.state, self.position
        if end is None:
            raise self._unproven("the account may not read the end of the binlog (REPLICATION CLIENT)")
        if ends_before(position, end):
            raise self._other(f"it ends at {end}")
        if state.gtids and position.gtid_set:
            self._check_continues()
            if self.info.is_mariadb and _parts(gtid_set_at(self.session, position)) != _parts(position.gtid_set):
                raise self._other(f"GTID {position.gtid_set} does not end there")
        try:
            lost = lost_event(self.log, self.endpoint) if self.log.generation is not None else ""
        except ShardmergeError as error:
            if error.spec not in NOT_THERE:
                raise
            lost = error.message
        if lost:
            raise self._other(lost)

    def check_other(self, states: tuple[str, str]) -> None:
        state, position = self.state, self.position
        if not (state.gtids and position.gtid_set):
            raise self._unproven(
                f"it is another server ({state.server}), and "
                + ("the relay log does not know its GTIDs" if state.gtids else "gtid_mode is not ON there")
            )
        self._check_continues()
        known: KnownGtids = (
            KnownMariadb(position.gtid_set, states, self.info.server_id)
            if self.info.is_mariadb
            else KnownMysql(position.gtid_set, self.before)
        )
        found = self._errant(known)
        if found is None:
            return
        if self.info.is_mariadb and not any(states):
            raise self._unproven(
                f"it wrote {found.gtid} itself, before {found.followed_by}, and there is no relay log here that shows "
                "whether that was read; a worker that has read the old server can check it (transfer-source)"
            )
        raise errors.relay.SWITCH_ERRANT(
            source=self.log.source,
            host=self.endpoint.host,
            port=self.endpoint.port,
            errant=found.gtid,
            before=self.before or "the server before",
            behind=found.followed_by,
        )

    def _check_continues(self) -> None:
        """As at the start of a dump, with an error for a command: no relay tries again."""
        known = self.position.gtid_set
        lacked = self.state.never_had(known)
        gone = "" if lacked else self.state.missing_after(known)
        if lacked or gone:
            raise errors.relay.SWITCH_LACKS_GTIDS(
                source=self.log.source,
                host=self.endpoint.host,
                port=self.endpoint.port,
                server=self.state.server,
                before=self.before or "the server before",
                reason=f"it does not have GTID {lacked}, which was read and may be applied"
                if lacked
                else f"it no longer has GTID {gone}, which follows",
            )

    def _errant(self, known: KnownGtids) -> Errant | None:
        files = [text_of(row[0]) for row in rows(self.session, "SHOW BINARY LOGS")]
        for number in range(len(files) - 1, -1, -1):
            before = list_of([line for _, line in self._page(files[number], FIRST_BYTE, _FIRST_LINES)])
            if before is not None and known.has_all(before):
                return errant(self._order(files[number:]), known)
        raise self._unproven(
            f"its oldest binlog file, {files[0] if files else 'none'}, begins after transactions that it wrote itself"
        )

    def _order(self, files: list[str]) -> Iterator[str]:
        """The GTIDs of the files, one after the other."""
        deadline = time.monotonic() + _SCAN_SECONDS
        for file in files:
            for kind, info in self._lines(file):
                if time.monotonic() > deadline:
                    raise self._unproven(
                        f"to read {file} for transactions of its own takes longer than {_SCAN_SECONDS:.0f} s; FLUSH "
                        "BINARY LOGS there, once the tasks have read all from the server before, makes it short"
                    )
                gtid = gtid_of(kind, info)
                if gtid is not None:
                    yield gtid

    def _lines(self, file: str) -> Iterator[tuple[str, str]]:
        """(kind, info) of the events of ``file``."""
        at = FIRST_BYTE
        while True:
            page = self._page(file, at, _LINES)
            yield from (line for _, line in page)
            if len(page) < _LINES:
                return
            at = page[-1][0]

    def _page(self, file: str, at: int, count: int) -> list[tuple[int, tuple[str, str]]]:
        """(byte at which it ends, (kind, info)) of the ``count`` events of ``file`` that begin at the byte ``at``."""
        statement = f"SHOW BINLOG EVENTS IN %s FROM {at} LIMIT {count}"
        try:
            # Log_name, Pos, Event_type, Server_id, End_log_pos, Info
            return [(int(row[4]), (text_of(row[2]), text_of(row[5]))) for row in rows(self.session, statement, (file,))]
        except pymysql.MySQLError as error:
            if kind_of(errno_of(error)) is ErrorKind.PRIVILEGE:
                raise self._unproven(f"the account may not read its binlog: {reason_of(error)}") from error
            if errno_of(error) != _WRONG_OFFSET:
                raise
            raise self._other(reason_of(error)) from error

    def _other(self, reason: str) -> ShardmergeError:
        return errors.relay.SWITCH_OTHER_BINLOG(
            source=self.log.source,
            host=self.endpoint.host,
            port=self.endpoint.port,
            server=self.state.server,
            position=self.position,
            reason=reason,
        )

    def _unproven(self, reason: str) -> ShardmergeError:
        return errors.relay.SWITCH_UNPROVEN(
            source=self.log.source,
            host=self.endpoint.host,
            port=self.endpoint.port,
            before=self.before or "the server before",
            reason=reason,
        )


def _parts(gtid_set: str | None) -> frozenset[str]:
    return frozenset((gtid_set or "").split(","))


def check_reach(source: str, endpoint: Endpoint, needed: SourcePosition) -> None:
    """Check that the source still has all transactions after ``needed``. Raises MOVE_WOULD_LOSE,
    and the errors of shardmerge.worker.core.mysql.server_errors.to_coded."""
    session = connect(endpoint, Side.SOURCE, name=source, read_timeout=_ANSWER_SECONDS)
    with session, coded_errors(endpoint, Side.SOURCE, source):
        info = server_info(session)
        state = source_state(session, info, source, endpoint)
        if needed.file and needed.server in ("", state.server):
            files = [text_of(row[0]) for row in rows(session, "SHOW BINARY LOGS")]
            if needed.file in files:
                return
            reason = f"its oldest binlog file is {files[0] if files else 'none'}"
        elif needed.gtid_set and state.gtids:
            missing = state.missing_after(needed.gtid_set)
            lacked = "" if missing else state.never_had(needed.gtid_set)
            if not missing and not lacked:
                return
            reason = f"GTID {missing} is purged" if missing else f"it never had GTID {lacked}"
        else:
            reason = f"it is another server ({state.server}), and the place has no GTID set"
    raise errors.relay.MOVE_WOULD_LOSE(
        source=source,
        host=endpoint.host,
        port=endpoint.port,
        position=needed if needed.file else needed.gtid_set,
        reason=reason,
    )
