"""Classifies event types by their place in an event group; the rules are in worker/relay/log/group_walker.py."""

from __future__ import annotations

from shardmerge.worker.binlog.events import EventType

GTIDS = frozenset({EventType.GTID, EventType.ANONYMOUS_GTID, EventType.GTID_TAGGED, EventType.MARIADB_GTID})
GTID_LISTS = frozenset({EventType.PREVIOUS_GTIDS, EventType.MARIADB_GTID_LIST})
HEARTBEATS = frozenset({EventType.HEARTBEAT, EventType.HEARTBEAT_V2})
MADE_UP = frozenset({EventType.ROTATE, *GTID_LISTS})
"""Further events that a dump thread makes; it marks them, or leaves ``log_pos`` 0."""

BEFORE_STATEMENT = frozenset(
    {
        EventType.INTVAR,
        EventType.RAND,
        EventType.USER_VAR,
        EventType.BEGIN_LOAD_QUERY,
        EventType.APPEND_BLOCK,
        EventType.ROWS_QUERY,
    }
)
ROWS = frozenset(
    {
        EventType.TABLE_MAP,
        EventType.WRITE_ROWS_V1,
        EventType.UPDATE_ROWS_V1,
        EventType.DELETE_ROWS_V1,
        EventType.WRITE_ROWS_V2,
        EventType.UPDATE_ROWS_V2,
        EventType.DELETE_ROWS_V2,
        EventType.PARTIAL_UPDATE_ROWS,
        EventType.ANNOTATE_ROWS,
        EventType.WRITE_ROWS_COMPRESSED_V1,
        EventType.UPDATE_ROWS_COMPRESSED_V1,
        EventType.DELETE_ROWS_COMPRESSED_V1,
        EventType.WRITE_ROWS_COMPRESSED,
        EventType.UPDATE_ROWS_COMPRESSED,
        EventType.DELETE_ROWS_COMPRESSED,
    }
)
ONLY_IN_GROUP = frozenset(
    {
        EventType.XID,
        EventType.XA_PREPARE,
        EventType.TRANSACTION_PAYLOAD,
        EventType.PRE_GA_WRITE_ROWS,
        EventType.PRE_GA_UPDATE_ROWS,
        EventType.PRE_GA_DELETE_ROWS,
        *ROWS,
    }
)
BREAKS_GROUP = frozenset({EventType.FORMAT_DESCRIPTION, EventType.ROTATE, EventType.STOP, *GTIDS, *GTID_LISTS})

WRAP = 1 << 32
"""``log_pos`` has 32 bits."""

LARGEST_GAP = 1 << 30
"""Most source bytes between two consecutive events of a dump: the source may leave out events (annotations)."""
