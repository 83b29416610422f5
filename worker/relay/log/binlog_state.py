"""Records which transactions of each server a MariaDB relay log has, or has before its begin.

A MariaDB GTID set only contains the last GTID of a domain, of any server. Whether another server's earlier
transactions were read, too, follows only from the received ones: the last number of each server of each domain.
MariaDB Knowledge Base, "Global Transaction ID" ("gtid_binlog_state").
"""

from __future__ import annotations

from shardmerge.worker.binlog.gtid_set import MARIADB


class BinlogState:
    """The highest number per domain and server. Its text is that of gtid_binlog_state: "0-1-5,0-2-9,1-2-3".

    MySQL's GTIDs are left out: its sets name every transaction.
    """

    __slots__ = ("_latest", "_text")

    def __init__(self, text: str = "") -> None:
        self._latest: dict[tuple[str, str], int] = {}
        self._text: str | None = None
        self.add_all(text)

    def add(self, gtid: str) -> None:
        found = MARIADB.fullmatch(gtid)
        if found is None:
            return
        domain, server, number = found.groups()
        if int(number) > self._latest.get((domain, server), 0):
            self._latest[domain, server] = int(number)
            self._text = None

    def add_all(self, text: str) -> None:
        """Every GTID of a list or set."""
        for part in text.split(","):
            self.add(part.strip())

    def latest(self, domain: str, server: str) -> int:
        """The highest number of a server in a domain, 0 for none."""
        return self._latest.get((domain, server), 0)

    def __str__(self) -> str:
        if self._text is None:
            ordered = sorted(self._latest, key=lambda key: (int(key[0]), int(key[1])))
            self._text = ",".join(f"{domain}-{server}-{self._latest[domain, server]}" for domain, server in ordered)
        return self._text
