"""An operator's override of a statement or row event of a source's binlog, as it is stored."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from shardmerge.worker.core.position import SourcePosition


class OverrideKind(enum.Enum):
    """What happens at the event."""

    SKIP = "skip"
    REPLACE = "replace"
    INJECT = "inject"


@dataclass(frozen=True, slots=True)
class StoredOverride:
    """``file`` and ``pos``: of the source's binlog. ``server``: as in SourcePosition; "": any server that has the
    position. ``statements``: separated by ";", with the names of the shard tables."""

    kind: OverrideKind
    file: str
    pos: int
    statements: str = ""
    server: str = ""

    def is_in(self, place: SourcePosition) -> bool:
        """Whether it is about the file of ``place``, before or after which the source may have been switched to another
        server."""
        return self.file == place.file and (not self.server or not place.server or self.server == place.server)
