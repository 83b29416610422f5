"""The option ``position``: the positions of an earlier load(), with what proves that they are the same ones. Pure.

File and byte alone do not: after a fail-over another server has files of the same names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from shardmerge.proto import errors
from shardmerge.proto.errors import ShardmergeError
from shardmerge.worker.core.position import SourcePosition


@dataclass(frozen=True, slots=True)
class FixedPosition:
    """``made``: Unix time at which the file of the position was made."""

    position: SourcePosition
    made: int


def to_text(positions: Mapping[str, FixedPosition]) -> str:
    """The value of the option, by source-id."""
    return json.dumps(
        {
            source: {
                "file": each.position.file,
                "byte": each.position.pos,
                "server": each.position.server,
                "made": each.made,
            }
            for source, each in positions.items()
        }
    )


def from_text(text: str) -> dict[str, FixedPosition]:
    """Raises ``read.OPTION``."""
    try:
        found = json.loads(text)
    except ValueError:
        raise _refused() from None
    if not isinstance(found, dict):
        raise _refused()
    return {source: _position(made) for source, made in cast("dict[str, Any]", found).items()}


def _position(found: Any) -> FixedPosition:
    match found:
        case {"file": str(file), "byte": int(byte), "server": str(server), "made": int(made)} if file and server:
            return FixedPosition(SourcePosition(file, byte, server=server), made)
        case _:
            raise _refused()


def _refused() -> ShardmergeError:
    return errors.read.OPTION(option="position", reason="it is not a value that load_fixed() has set")
