"""Positions: at the source (file, byte, GTID set) and in its relay log (segment, byte)."""

from __future__ import annotations

import re
from dataclasses import dataclass

from shardmerge.proto import common_pb2 as pb

_FILE_NUMBER = re.compile(r"\.(\d+)$")


@dataclass(frozen=True, slots=True, order=True)
class RelayOffset:
    """A position in one source's relay log: the total order of that source."""

    segment: int
    byte: int

    def to_proto(self) -> pb.RelayOffset:
        return pb.RelayOffset(segment=self.segment, byte=self.byte)

    @staticmethod
    def from_proto(message: pb.RelayOffset) -> RelayOffset:
        return RelayOffset(message.segment, message.byte)

    def __str__(self) -> str:
        return f"{self.segment}:{self.byte}"


@dataclass(frozen=True, slots=True)
class Located:
    """A position of the source as an offset of relay log ``relay_id``."""

    relay_id: str
    offset: RelayOffset


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """A position in one source's binlog as the source names it; ``gtid_set`` "" when unknown.

    ``file`` "": the position after exactly the transactions of ``gtid_set``. ``server``: the server whose files are
    meant (:attr:`shardmerge.worker.core.mysql.connection.ServerInfo.identity`), "" when unknown: after a fail-over the
    source is another server, with other files.

    Not ordered by itself: GTID sets may be incomparable. Within one server's files
    :meth:`file_order` orders them.
    """

    file: str
    pos: int
    gtid_set: str = ""
    server: str = ""

    def file_order(self) -> tuple[int, int]:
        """(number of the file, byte): comparable among positions of one server."""
        match = _FILE_NUMBER.search(self.file)
        return (int(match.group(1)) if match else 0, self.pos)

    def same_server(self, other: SourcePosition) -> bool:
        """Whether both are positions in files of one server, as far as is known."""
        both_known = bool(self.server and other.server)
        return bool(self.file and other.file) and not (both_known and self.server != other.server)

    def reaches(self, other: SourcePosition) -> bool:
        """Whether this position is known to be at or after ``other``, by the files."""
        return self.same_server(other) and self.file_order() >= other.file_order()

    def to_proto(self) -> pb.SourcePosition:
        return pb.SourcePosition(file=self.file, pos=self.pos, gtid_set=self.gtid_set, server=self.server)

    @staticmethod
    def from_proto(message: pb.SourcePosition) -> SourcePosition:
        return SourcePosition(message.file, message.pos, message.gtid_set, message.server)

    def __str__(self) -> str:
        return f"({self.file}, {self.pos})" if self.file or not self.gtid_set else self.gtid_set
