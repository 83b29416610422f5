"""When a transaction committed at its source, as well as a binlog and a clock here can tell.

MySQL 8 writes the commit's microseconds into the GTID event (sql/log_event.h, Gtid_log_event,
``immediate_commit_timestamp``): exact by the source's clock. MariaDB and older MySQL have only the event header's
whole seconds: there the moment at which the relay received the transaction's end is the better clock, as long as it
lies within that second; where the relay is behind, or reads its log again after a restart, the second it is.

A commit never lies after its receipt: a source whose clock is ahead gives no lag below zero. A clock that is behind
cannot be told from a transaction that came late: it shows as lag.
"""

from __future__ import annotations

from worker.binlog.events import CHECKSUM_SIZE, HEADER_SIZE, EventType
from worker.binlog.gtids import parse_tagged

_MYSQL_AT = HEADER_SIZE + 42  # behind flags, uuid, number, type code and two logical timestamps
_MYSQL_BYTES = 7
_MASK = (1 << 55) - 1  # the bit above says that the original commit's time follows


def exact_time(gtid_event: bytes) -> float:
    """Unix seconds of the commit that a MySQL GTID event (of any kind, header included) tells, 0.0 if none.

    Raises decode.MALFORMED_EVENT for a tagged one that is none.
    """
    if len(gtid_event) > HEADER_SIZE and gtid_event[4] == EventType.GTID_TAGGED:
        # With or without a checksum behind it: the message tells its own size.
        return parse_tagged(gtid_event, checksum=False)[1] / 1e6
    if len(gtid_event) < _MYSQL_AT + _MYSQL_BYTES + CHECKSUM_SIZE:
        return 0.0
    return (int.from_bytes(gtid_event[_MYSQL_AT : _MYSQL_AT + _MYSQL_BYTES], "little") & _MASK) / 1e6


def estimated_time(exact: float, timestamp: int, received: float) -> float:
    """Unix seconds of a commit. ``timestamp``: of its last event's header; ``exact`` and ``received``: 0.0 if unknown.

    Pure; see the module.
    """
    if exact:
        return min(exact, received) if received else exact
    if not received:
        return float(timestamp)
    return min(received, timestamp + 1.0)
