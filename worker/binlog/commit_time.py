"""Determines when a transaction committed at its source, from the binlog and the time of receipt.

MySQL 8 writes the commit's microseconds into the GTID event (sql/log_event.h, Gtid_log_event,
``immediate_commit_timestamp``): exact by the source's clock. MariaDB and older MySQL have only the event header's
whole seconds: there the time at which the relay received the transaction's end is more exact, as long as it is
within that second; if the relay lags behind, or reads its log again after a restart, the header's second is used.

All times are of the source's clock: the time of receipt is the worker's plus the measured difference of the clocks
(worker/relay/clock_offset.py). A commit is never later than its receipt: small differences of the clocks that are not
corrected make no lag negative.
"""

from __future__ import annotations

from shardmerge.worker.binlog.event_kinds import GTIDS
from shardmerge.worker.binlog.events import CHECKSUM_SIZE, HEADER_SIZE, EventType
from shardmerge.worker.binlog.gtid_events import parse_tagged

_MYSQL_AT = HEADER_SIZE + 42  # after flags, uuid, number, type code and two logical timestamps
_MYSQL_BYTES = 7
_MASK = (1 << 55) - 1  # the bit above means that the original commit's time follows


def exact_time(gtid_event: bytes) -> float:
    """Unix seconds of the commit in a MySQL GTID event (of any kind, header included), 0.0 if it has none.

    Raises decode.MALFORMED_EVENT for a malformed tagged event.
    """
    if len(gtid_event) > HEADER_SIZE and gtid_event[4] == EventType.GTID_TAGGED:
        # With or without a checksum: the message contains its own size.
        return parse_tagged(gtid_event, checksum=False)[1] / 1e6
    if len(gtid_event) < _MYSQL_AT + _MYSQL_BYTES + CHECKSUM_SIZE:
        return 0.0
    return (int.from_bytes(gtid_event[_MYSQL_AT : _MYSQL_AT + _MYSQL_BYTES], "little") & _MASK) / 1e6


def logged_time(event: bytes) -> float:
    """Unix seconds of the commit of the group that begins with ``event``, else the second in its header."""
    exact = exact_time(event) if event[4] in GTIDS and event[4] != EventType.MARIADB_GTID else 0.0
    return exact or float(int.from_bytes(event[:4], "little"))


def estimated_time(exact: float, timestamp: int, received: float) -> float:
    """Unix seconds of a commit. ``timestamp``: of its last event's header; ``exact`` and ``received``: 0.0 if unknown;
    all by the source's clock.

    Pure; see the module's docstring.
    """
    if exact:
        return min(exact, received) if received else exact
    if not received:
        return float(timestamp)
    return min(received, timestamp + 1.0)
