"""relay.json: which relay log this is and where it begins."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from proto import errors
from worker.position import SourcePosition
from worker.relay.files import write_durably

FILE_NAME = "relay.json"


@dataclass(frozen=True, slots=True)
class Generation:
    """One relay log from its beginning to its replacement by one that begins earlier.

    ``first``: number of the oldest segment kept, which begins at ``begin``. ``segment_bytes`` is fixed here
    because relay offsets must come out equal when a lost tail is fetched again. ``server``: the
    source it was written from ("" until first connected).
    """

    relay_id: str
    first: int
    begin: SourcePosition
    segment_bytes: int
    server: str = ""

    def with_server(self, server: str) -> Generation:
        return replace(self, server=server)

    def from_segment(self, first: int, begin: SourcePosition) -> Generation:
        return replace(self, first=first, begin=begin)


def load(directory: Path, source: str) -> Generation | None:
    """The directory's generation, None when none was begun. Raises errors.relay.RELAY_DAMAGED."""
    path = directory / FILE_NAME
    try:
        fields = json.loads(path.read_bytes())
        begin = fields.pop("begin")
        return Generation(
            relay_id=str(fields["relay_id"]),
            first=int(fields["first"]),
            begin=SourcePosition(str(begin["file"]), int(begin["pos"]), str(begin["gtid_set"])),
            segment_bytes=int(fields["segment_bytes"]),
            server=str(fields["server"]),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise errors.relay.RELAY_DAMAGED(
            source=source, path=path, reason=f"not a description of a relay log ({error})", directory=directory
        ) from error


def store(directory: Path, generation: Generation) -> None:
    """Replace relay.json durably; raises OSError."""
    write_durably(directory / FILE_NAME, json.dumps(asdict(generation), indent=1).encode())
