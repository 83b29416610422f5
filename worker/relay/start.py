"""Where a dump has to begin so that nothing is lost or fetched twice: pure.

By file and position at the server that was read before. By GTID at any other, when the relay log knows its GTIDs, and
where it begins by a GTID set. A file may hold known transactions behind unknown ones (a replica commits in another
order; a set is read while transactions commit): so until a file begins behind all that was known, GTIDs it stays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from proto import errors
from proto.errors import ShardmergeError
from worker.position import SourcePosition
from worker.relay.generation import NOWHERE, Generation
from worker.relay.gtid import GtidSet
from worker.relay.model import Head


@dataclass(frozen=True, slots=True)
class SourceState:
    """What a source says about itself on a new connection.

    ``server``: ServerInfo.identity. ``gtids``: whether every transaction has one. ``executed``: the set it has
    (MariaDB: gtid_binlog_state and gtid_slave_pos); ``purged``: what of that its files no longer hold, "" for nothing
    or unknown. ``end``: where its binlog ended after the sets were asked; None when the account may not ask.
    """

    server: str
    host: str
    port: int
    gtids: bool
    executed: str
    purged: str
    end: SourcePosition | None

    def missing_behind(self, gtid_set: str) -> str:
        """The first GTID behind a set that is purged; "" if none is, or if that is not known."""
        if not (gtid_set and self.purged):
            return ""
        return GtidSet(gtid_set).lacks(GtidSet(self.purged))

    def never_had(self, gtid_set: str) -> str:
        """A GTID of a set that the source never had; "" if it had all of them."""
        return GtidSet(self.executed).never_had(GtidSet(gtid_set))


@dataclass(frozen=True, slots=True)
class FromFile:
    """At this place; ``seed``: the GTID set there is not known but can be found out."""

    position: SourcePosition
    seed: bool


@dataclass(frozen=True, slots=True)
class FromGtids:
    """Whatever is not in this set."""

    gtid_set: str


Start = FromFile | FromGtids


@dataclass(frozen=True, slots=True)
class Goes:
    """The same server as before."""

    start: Start


@dataclass(frozen=True, slots=True)
class Begins:
    """The first connection of an empty log; see Generation.connected."""

    start: Start
    floor: SourcePosition
    settling: str | None


@dataclass(frozen=True, slots=True)
class Switches:
    """Another server than before; see Generation.switched."""

    start: FromGtids
    floor: SourcePosition


Plan = Goes | Begins | Switches


def plan_start(
    source: str, generation: Generation, head: Head, empty: bool, state: SourceState, directory: object
) -> Plan:
    """How to go on at the server that ``state`` describes.

    ``empty``: nothing was stored yet. Raises SOURCE_CHANGED, SOURCE_GTIDS_GONE, SOURCE_LACKS_GTIDS (retryable).
    """
    position = head.position
    same = position.server in ("", state.server)
    known = position.gtid_set if state.gtids else ""
    if empty:
        if position.file and same and not (known and state.executed and _is_mysql(known)):
            return Begins(FromFile(position, seed=state.gtids and not known), _at(position, state), None)
        if known:
            check_goes_on(source, state, known, position)
            # A set that came with a place was read before it: all of it lies before that place.
            floor = _at(position, state) if position.file and same else state.end or NOWHERE
            return Begins(FromGtids(known), floor, known)
    elif same and generation.settling is None:
        return Goes(FromFile(position, seed=state.gtids and not known))
    elif known:
        check_goes_on(source, state, known, position)
        return Goes(FromGtids(known)) if same else Switches(FromGtids(known), state.end or NOWHERE)
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


def _is_mysql(gtid_set: str) -> bool:
    return ":" in gtid_set


def check_goes_on(source: str, state: SourceState, known: str, position: SourcePosition) -> None:
    """Whether a server can go on behind ``known``, which was read up to ``position`` of another. Raises
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
    missing = state.missing_behind(known)
    if missing:
        raise gtids_gone(source, state, known, missing, "its binlogs were purged")


def gtids_gone(source: str, state: SourceState, known: str, missing: str, reason: str) -> ShardmergeError:
    """Made, not raised."""
    return errors.relay.SOURCE_GTIDS_GONE(
        source=source,
        host=state.host,
        port=state.port,
        gtid_set=known,
        missing=missing or "not told",
        reason=reason,
    )
