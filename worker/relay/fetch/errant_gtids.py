"""Finds errant transactions: a new server's own transactions between those that were read from the old server. Pure.

A server that is dumped by GTID sends the transactions that the relay log lacks, in the order of its own binlog. Its own
transactions that precede replicated ones in that order would be applied after them, and the result would differ from
its rows. MySQL Reference Manual, "GTID Format and Storage", "Restrictions on Replication with GTIDs"; MariaDB Knowledge
Base, "Global Transaction ID" ("gtid_binlog_state": the last number of each server of a domain).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from shardmerge.worker.binlog.gtid_set import GtidSet
from shardmerge.worker.relay.log.binlog_state import BinlogState

_MYSQL_NEXT = re.compile(r"GTID_NEXT\s*=\s*'([0-9a-fA-F-]{36}:[^']+)'")
_MARIADB_GTID = re.compile(r"\bGTID (\d+-\d+-\d+)")


class KnownGtids(Protocol):
    """The transactions that were read from the old server, or are known to come from it."""

    def has(self, gtid: str) -> bool: ...

    def has_all(self, gtid_set: str) -> bool:
        """Whether all GTIDs of the list at the start of a binlog file are known."""
        ...

    def is_own(self, gtid: str) -> bool:
        """Whether the new server may have written it; it replicated the transactions of other servers."""
        ...

    def domain(self, gtid: str) -> str:
        """The GTID's domain. Transactions of one domain are ordered; those of different domains are not."""
        ...


class KnownMysql:
    """``read``: the set of the relay log's head; ``before``: the server_uuid of the old server."""

    def __init__(self, read: str, before: str) -> None:
        self._read = GtidSet(read)
        self._before = before.lower()

    def has(self, gtid: str) -> bool:
        return bool(self._read.conflict_with(gtid))

    def has_all(self, gtid_set: str) -> bool:
        return not self._read.lacks(GtidSet(gtid_set))

    def is_own(self, gtid: str) -> bool:
        # A replica with several appliers may commit the old server's transactions in another order.
        return gtid.partition(":")[0].lower() != self._before

    def domain(self, gtid: str) -> str:
        return ""


class KnownMariadb:
    """``read``: the last GTID per domain at the relay log's head; ``states``: the last GTID per domain and server that
    the old server had written and applied when it was first read (its gtid_binlog_state), and that the relay log
    has, "" if unknown; ``server_id``: the new server's.

    Numbers ascend per domain: those of other servers that are not above the head's count as read.
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
    """The server's own transaction ``gtid``, and a known transaction after it in its binlog (``followed_by``)."""

    gtid: str
    followed_by: str


def errant(order: Iterable[str], known: KnownGtids) -> Errant | None:
    """The first own transaction that a known one follows. ``order``: GTIDs in the order of the new server's binlog,
    from a file on before which all are known."""
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
    """The GTID of the next transaction in a line of SHOW BINLOG EVENTS; None: the line has none."""
    if kind not in ("Gtid", "Gtid_tagged"):
        return None
    found = _MYSQL_NEXT.search(info) or _MARIADB_GTID.search(info)
    return None if found is None else found.group(1)


def list_of(lines: Sequence[tuple[str, str]]) -> str | None:
    """The GTIDs written before a file, from its first lines (kind, info); None when the lines lack them."""
    for kind, info in lines:
        if kind in ("Previous_gtids", "Gtid_list"):
            return info.strip().strip("[]").replace("\n", "")
    return None
