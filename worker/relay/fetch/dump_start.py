"""Determines where a dump must begin so that nothing is lost or fetched twice. Pure.

By file and position at the server that was read before. By GTID at any other server, if the relay log knows its GTIDs,
and if it begins by a GTID set. A file may have known transactions after unknown ones (a replica commits in another
order; a set is read while transactions commit): so dumps are requested by GTID until a file begins after all
transactions that were known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.binlog.gtid_set import GtidSet
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.relay.log.generation import NOWHERE, Generation
from shardmerge.worker.relay.model import Head

LARGEST_DUMP_POSITION = (1 << 32) - 1
"""The command that begins a dump at a byte of a file has 32 bits for it."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """The state of a source, read on a new connection.

    ``server``: ServerInfo.identity. ``gtids``: whether every transaction has one. ``executed``: the set it has
    (MariaDB: gtid_binlog_state and gtid_slave_pos); ``purged``: the part of it that its files no longer have, "" for
    nothing or unknown. ``end``: the end of its binlog, read after the sets; None when the account lacks the privilege.
    """

    server: str
    host: str
    port: int
    gtids: bool
    executed: str
    purged: str
    end: SourcePosition | None

    def missing_after(self, gtid_set: str) -> str:
        """The first GTID after a set that is purged; "" if none is, or if that is unknown."""
        if not (gtid_set and self.purged):
            return ""
        return GtidSet(gtid_set).lacks(GtidSet(self.purged))

    def never_had(self, gtid_set: str) -> str:
        """A GTID of the set that the source never had; "" if it had all of them."""
        return GtidSet(self.executed).never_had(GtidSet(gtid_set))


@dataclass(frozen=True, slots=True)
class FromFile:
    """From this position; ``seed``: the GTID set there is unknown but can be determined."""

    position: SourcePosition
    seed: bool


@dataclass(frozen=True, slots=True)
class FromGtids:
    """Everything that is not in this set."""

    gtid_set: str


Start = FromFile | FromGtids


@dataclass(frozen=True, slots=True)
class Continues:
    """The same server as before."""

    start: Start


@dataclass(frozen=True, slots=True)
class FirstStart:
    """The first connection of an empty log; see Generation.connected."""

    start: Start
    floor: SourcePosition
    settling: str | None


@dataclass(frozen=True, slots=True)
class ServerChanged:
    """Another server than before; see Generation.switched."""

    start: FromGtids
    floor: SourcePosition


Plan = Continues | FirstStart | ServerChanged


def plan_start(
    source: str,
    generation: Generation,
    head: Head,
    empty: bool,
    state: SourceState,
    directory: object,
    set_there: str | None = None,
) -> Plan:
    """How to continue at the server that ``state`` describes.

    ``empty``: nothing was stored yet. ``set_there``: MariaDB: the GTID set that the server has at the head's position;
    None: unknown. Raises SOURCE_CHANGED, SOURCE_GTIDS_GONE, SOURCE_LACKS_GTIDS (retryable).
    """
    position = head.position
    same = position.server in ("", state.server)
    known = position.gtid_set if state.gtids else ""
    if empty:
        if (
            position.file
            and same
            and not (known and state.executed and (_is_mysql(known) or _is_early(set_there, known, state.executed)))
        ):
            return FirstStart(FromFile(position, seed=state.gtids and not known), _at(position, state), None)
        if known:
            check_continues(source, state, known, position)
            # A set with a position was read before it: all its transactions are before that position.
            floor = _at(position, state) if position.file and same else state.end or NOWHERE
            return FirstStart(FromGtids(known), floor, known)
    elif same and generation.settling is None:
        return Continues(FromFile(position, seed=state.gtids and not known))
    elif known:
        check_continues(source, state, known, position)
        return Continues(FromGtids(known)) if same else ServerChanged(FromGtids(known), state.end or NOWHERE)
    raise errors.relay.SOURCE_CHANGED(
        source=source,
        host=state.host,
        port=state.port,
        found=state.server if state.gtids else f"{state.server} (without GTIDs)",
        expected=position.server or generation.server or "a GTID set",
        directory=directory,
    )


def _at(position: SourcePosition, state: SourceState) -> SourcePosition:
    return replace(position, server=state.server)


def _is_early(set_there: str | None, known: str, executed: str) -> bool:
    """Whether transactions of ``known`` follow the position. A position that was recorded after a change of the server,
    and before its first event, is that of the file's beginning. ``executed``: by the server; if it lacks transactions
    of ``known``, its binlog began anew, which the start from the file reports."""
    if set_there is None:
        return False
    wanted = GtidSet(known)
    return bool(GtidSet(set_there).lacks(wanted)) and not GtidSet(executed).lacks(wanted)


def _is_mysql(gtid_set: str) -> bool:
    return ":" in gtid_set


def check_continues(source: str, state: SourceState, known: str, position: SourcePosition) -> None:
    """Check that a server can continue after ``known``, which was read up to ``position`` of another server. Raises
    SOURCE_LACKS_GTIDS (retryable), SOURCE_GTIDS_GONE."""
    lacked = state.never_had(known)
    if lacked:
        raise errors.relay.SOURCE_LACKS_GTIDS(
            source=source,
            host=state.host,
            port=state.port,
            server=state.server,
            missing=lacked,
            before=position.server or "a configured set",
        )
    missing = state.missing_after(known)
    if missing:
        raise gtids_gone(source, state, known, missing, "its binlogs were purged")


def gtids_gone(source: str, state: SourceState, known: str, missing: str, reason: str) -> ShardmergeError:
    """Returns the error, does not raise it."""
    return errors.relay.SOURCE_GTIDS_GONE(
        source=source,
        host=state.host,
        port=state.port,
        gtid_set=known,
        missing=missing or "unknown",
        reason=reason,
    )
