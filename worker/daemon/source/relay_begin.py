"""Begins the relay log of a source without tasks at ``relay-binlog-name`` or ``relay-binlog-gtid``.

Source: TiDB DM's documentation, "Relay Log", "Initial setup": they apply if there is no relay log yet; with
``enable-gtid`` the GTID set counts, else the file. A task that needs an earlier start restarts the log there.
"""

from __future__ import annotations

from shardmerge.proto import config_pb2
from shardmerge.proto.errors import ShardmergeError
from shardmerge.proto.log import get_logger
from shardmerge.worker.core.position import SourcePosition
from shardmerge.worker.relay.relay import Relay

log = get_logger()


def relay_start(source: config_pb2.SourceConfig) -> SourcePosition | None:
    """The position that the source's file configures; None for none. Pure."""
    configured = SourcePosition.from_proto(source.relay_start)
    if configured.gtid_set and (source.enable_gtid or not configured.file):
        return SourcePosition("", 0, configured.gtid_set)
    return SourcePosition(configured.file, configured.pos) if configured.file else None


def begin_relay(relay: Relay, source: config_pb2.SourceConfig) -> None:
    """Begin a relay log that has not begun at the position in the source's file, if there is one.

    Only for a source without tasks: otherwise the log begins where they begin, and the source may have purged the
    configured position long ago.
    """
    start = relay_start(source)
    if start is None or relay.relay_id:
        return
    try:
        relay.ensure_from(start)
    except ShardmergeError as error:
        log.warning("the relay log cannot begin at the configured position", source=source.source_id, error=error)
