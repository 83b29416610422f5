"""Whether a server that is to be followed from now on has written transactions of its own in the midst of those that
were read from another: pure.

A replica that goes on by GTID sends what it has and the relay log has not, in the order of its own binlog. What it
wrote itself before transactions that came by replication would be applied behind them, and the rows would not be its.
MySQL Reference Manual, "GTID Format and Storage", "Restrictions on Replication with GTIDs"; MariaDB Knowledge Base,
"Global Transaction ID" ("gtid_binlog_state": the last number of each server of a domain).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from worker.relay.binlog_state import BinlogState
from worker.relay.gtid import GtidSet

_MYSQL_NEXT = re.compile(r"GTID_NEXT\s*=\s*'([0-9a-fA-F-]{36}:[^']+)'")
_MARIADB_GTID = re.compile(r"\bGTID (\d+-\d+-\d+)")


class Known(Protocol):
    """What was read from the server before, or is known to have come from it."""

    def has(self, gtid: str) -> bool: ...

    def has_all(self, gtid_set: str) -> bool:
        """Of the list with which a binlog file begins."""
        ...

    def is_own(self, gtid: str) -> bool:
        """Whether the new server may have written it: one of another server came to it by replication."""
        ...

    def domain(self, gtid: str) -> str:
        """Transactions of one domain are in an order; those of several are not."""
        ...


class KnownMysql:
    """``read``: the set of the relay log's head; ``before``: the server_uuid of the server that it came from."""

    def __init__(self, read: str, before: str) -> None:
        self._read = GtidSet(read)
        self._before = before.lower()

    def has(self, gtid: str) -> bool:
        return bool(self._read.not_beyond(gtid))

    def has_all(self, gtid_set: str) -> bool:
        return not self._read.lacks(GtidSet(gtid_set))

    def is_own(self, gtid: str) -> bool:
        # A replica with several appliers may commit what came from the server before in another order.
        return gtid.partition(":")[0].lower() != self._before

    def domain(self, gtid: str) -> str:
        return ""


class KnownMariadb:
    """``read``: the last GTID per domain at the relay log's head; ``states``: the last GTID per domain and server that
    the server before had written and applied when it was first read (its gtid_binlog_state), and that the relay log
    has, "" for what is not known; ``server_id``: the new server's.

    Numbers run per domain: of other servers all that are not above the head's are taken for read.
    """

    def __init__(self, read: str, states: Iterable[str], server_id: int) -> None:
        self._heads: dict[str, int] = {}
        self._state = BinlogState(read)
        self._server_id = str(server_id)
        for part in filter(None, read.split(",")):
            domain, _, number = part.strip().split("-")
            self._heads[domain] = int(number)
        for state in states:
            self._state.add_all(state)

    def has(self, gtid: str) -> bool:
        domain, server, number = gtid.split("-")
        known = self._state.latest(domain, server)
        if server != self._server_id:
            known = max(known, self._heads.get(domain, 0))
        return int(number) <= known

    def has_all(self, gtid_set: str) -> bool:
        return all(self.has(part.strip()) for part in gtid_set.split(",") if part.strip())

    def is_own(self, gtid: str) -> bool:
        return gtid.split("-")[1] == self._server_id

    def domain(self, gtid: str) -> str:
        return gtid.split("-", maxsplit=1)[0]


@dataclass(frozen=True, slots=True)
class Errant:
    """Transaction ``gtid`` of the server's own, and one that was read, which comes ``behind`` it in its binlog."""

    gtid: str
    behind: str


def errant(order: Iterable[str], known: Known) -> Errant | None:
    """The first own transaction that is followed by one that was read. ``order``: GTIDs as the new server's binlog has
    them, from a file on that begins with known ones alone."""
    own: dict[str, str] = {}
    for gtid in order:
        domain = known.domain(gtid)
        if not known.has(gtid):
            if known.is_own(gtid):
                own.setdefault(domain, gtid)
        elif domain in own:
            return Errant(own[domain], gtid)
    return None


def gtid_of(kind: str, info: str) -> str | None:
    """Of a line of SHOW BINLOG EVENTS: the GTID that it gives to the transaction behind it; None: it gives none."""
    if kind not in ("Gtid", "Gtid_tagged"):
        return None
    found = _MYSQL_NEXT.search(info) or _MARIADB_GTID.search(info)
    return None if found is None else found.group(1)


def list_of(lines: Sequence[tuple[str, str]]) -> str | None:
    """Of a file's first lines (kind, info): the GTIDs that were written before it; None when they do not say."""
    for kind, info in lines:
        if kind in ("Previous_gtids", "Gtid_list"):
            return info.strip().strip("[]").replace("\n", "")
    return None
