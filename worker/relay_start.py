"""Where the relay log of a source without tasks begins: ``relay-binlog-name`` and ``relay-binlog-gtid``.

Source: TiDB DM's documentation, "Relay Log", "Initial setup": they hold where there is no relay log yet; with
``enable-gtid`` the GTID set counts, else the file. Tasks that need more take the log back to where they need it.
"""

from __future__ import annotations

from proto import config_pb2
from proto.errors import ShardmergeError
from proto.log import get_logger
from worker.position import SourcePosition
from worker.relay.relay import Relay

log = get_logger()


def relay_start(source: config_pb2.SourceConfig) -> SourcePosition | None:
    """The place that the source's file names; None for none. Pure."""
    given = SourcePosition.from_proto(source.relay_start)
    if given.gtid_set and (source.enable_gtid or not given.file):
        return SourcePosition("", 0, given.gtid_set)
    return SourcePosition(given.file, given.pos) if given.file else None


def begin_relay(relay: Relay, source: config_pb2.SourceConfig) -> None:
    """Let a relay log that has not begun begin where the source's file says, if it does.

    For a source without tasks only: where these begin, the log begins too, and the file's place may be gone from the
    source for long.
    """
    start = relay_start(source)
    if start is None or relay.relay_id:
        return
    try:
        relay.ensure_from(start)
    except ShardmergeError as error:
        log.warning("the relay log does not begin where the source's file says", source=source.source_id, error=error)
