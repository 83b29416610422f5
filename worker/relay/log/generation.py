"""The identity of a relay log, its begin and the servers that it was written from, stored in relay.json."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from shardmerge.proto import errors
from shardmerge.proto.files.durable_file import write_durably
from shardmerge.worker.core.position import SourcePosition

FILE_NAME = "relay.json"
NOWHERE = SourcePosition("", 0)


@dataclass(frozen=True, slots=True)
class RelayLogPart:
    """The part of a relay log that was written from one server: from segment number ``segment`` on.

    ``server``: ServerInfo.identity, "" until first connected. ``floor``: from this position on, in the order of that
    server's files, the log has every transaction: earlier ones may have come from another server or were
    known by their GTIDs, so positions before it cannot be found by file and byte. NOWHERE: no position can.
    ``executed``: the transactions that MariaDB had written and applied when it was first read, by server; "": unknown.
    """

    server: str
    segment: int
    floor: SourcePosition
    executed: str = ""


@dataclass(frozen=True, slots=True)
class Generation:
    """One relay log from its beginning to its replacement by one that begins earlier.

    ``first``: number of the oldest segment kept, which begins at ``begin``. ``segment_bytes`` is fixed here
    because relay offsets must be the same when a lost tail is fetched again. ``parts``: ascending, never empty.
    ``settling``: None while positions in the source's files suffice to continue. Else the GTID set of the log when
    it began to be fetched by GTID: a file may have transactions of that set after others, so until a file
    begins after all of it, a new connection must request by GTID too. ``lost_xids``: XA transactions whose PREPARE was
    searched in all of the source's files and not found.
    """

    relay_id: str
    first: int
    begin: SourcePosition
    segment_bytes: int
    parts: tuple[RelayLogPart, ...]
    settling: str | None = None
    lost_xids: tuple[str, ...] = ()

    @property
    def server(self) -> str:
        """The server that it is written from now; "" until first connected."""
        return self.parts[-1].server

    def connected(self, server: str, floor: SourcePosition, settling: str | None) -> Generation:
        """The generation after the first connection: it only has its begin yet."""
        return replace(self, parts=(RelayLogPart(server, self.first, floor),), settling=settling)

    def with_executed(self, executed: str) -> Generation:
        """The generation with ``executed`` in its newest part, unless that has it already."""
        last = self.parts[-1]
        return self if last.executed else replace(self, parts=(*self.parts[:-1], replace(last, executed=executed)))

    def switched(self, relay_id: str, part: RelayLogPart, settling: str) -> Generation:
        """The generation that is written from another server from the future segment ``part.segment`` on."""
        kept = tuple(old for old in self.parts if old.segment < part.segment)
        return replace(self, relay_id=relay_id, parts=(*kept, part), settling=settling)

    def from_segment(self, first: int, begin: SourcePosition) -> Generation:
        """The generation without the segments below ``first``."""
        at = max(index for index, part in enumerate(self.parts) if index == 0 or part.segment <= first)
        return replace(self, first=first, begin=begin, parts=self.parts[at:])

    def part_of(self, segment: int) -> RelayLogPart:
        """The part that a segment belongs to."""
        return next((part for part in reversed(self.parts) if part.segment <= segment), self.parts[0])


def load(directory: Path, source: str) -> Generation | None:
    """The directory's generation, None when none was begun. Raises errors.relay.RELAY_DAMAGED."""
    path = directory / FILE_NAME
    try:
        fields: dict[str, Any] = json.loads(path.read_bytes())
        begin = _position(fields["begin"])
        first = int(fields["first"])
        # Files of versions without parts have one server.
        parts = tuple(map(_part, fields.get("parts", ()))) or (RelayLogPart(str(fields["server"]), first, begin),)
        settling = fields.get("settling")
        return Generation(
            relay_id=str(fields["relay_id"]),
            first=first,
            begin=begin,
            segment_bytes=int(fields["segment_bytes"]),
            parts=parts,
            settling=None if settling is None else str(settling),
            lost_xids=tuple(map(str, fields.get("lost_xids", ()))),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise errors.relay.RELAY_DAMAGED(
            source=source, path=path, reason=f"not a description of a relay log ({error})", directory=directory
        ) from error


def _part(fields: dict[str, Any]) -> RelayLogPart:
    executed = str(fields.get("executed", ""))
    return RelayLogPart(str(fields["server"]), int(fields["segment"]), _position(fields["floor"]), executed)


def _position(fields: dict[str, Any]) -> SourcePosition:
    return SourcePosition(
        str(fields["file"]), int(fields["pos"]), str(fields["gtid_set"]), str(fields.get("server", ""))
    )


def store(directory: Path, generation: Generation) -> None:
    """Replace relay.json durably; raises OSError."""
    write_durably(directory / FILE_NAME, json.dumps(asdict(generation), indent=1).encode())
