"""GTID sets as the relay log carries them along: text in, one GTID after the other added, text out."""

from __future__ import annotations

import re

_MARIADB = re.compile(r"(\d+)-(\d+)-(\d+)")
_MYSQL = re.compile(r"([0-9a-fA-F-]{36})((?::\d+(?:-\d+)?)+)")


class GtidSet:
    """An executed set that grows.

    MariaDB: the last GTID per domain ("0-1-5,1-2-9"; of several per domain the last one counts, as
    the server writes its GTID_LIST). MySQL: intervals per server ("uuid:1-5:7"). A text of neither
    form makes the set unknown: its text is "" and stays so.
    """

    __slots__ = ("_domains", "_intervals", "_latest", "_text", "_unknown")

    def __init__(self, text: str, *, known: bool = True) -> None:
        self._domains: dict[str, str] = {}
        self._intervals: dict[str, list[tuple[int, int]]] = {}
        self._latest: dict[tuple[str, str], int] = {}
        self._unknown = not known
        self._text: str | None = None
        for part in text.replace("\n", "").split(","):
            if part.strip():
                self.add(part.strip())

    def add(self, text: str) -> None:
        """Add one GTID, or one server's part of a MySQL set."""
        self._text = None
        mariadb = _MARIADB.fullmatch(text)
        if mariadb is not None:
            domain, server, number = mariadb.groups()
            self._domains[domain] = text
            self._latest[domain, server] = int(number)
            return
        mysql = _MYSQL.fullmatch(text)
        if mysql is None:
            self.forget()
            return
        intervals = self._intervals.setdefault(mysql.group(1).lower(), [])
        for piece in mysql.group(2)[1:].split(":"):
            first, _, last = piece.partition("-")
            _insert(intervals, int(first), int(last or first))

    def not_beyond(self, text: str) -> str:
        """What of this set says that GTID ``text`` cannot come next; "" when it can.

        MariaDB: the last GTID of the same domain and server, when its number is not lower (other servers of a domain
        may be behind, unless gtid_strict_mode is on). MySQL: the GTID itself, when the set has it.
        """
        mariadb = _MARIADB.fullmatch(text)
        if mariadb is not None:
            domain, server, number = mariadb.groups()
            latest = self._latest.get((domain, server), 0)
            return f"{domain}-{server}-{latest}" if latest >= int(number) else ""
        mysql = _MYSQL.fullmatch(text)
        if mysql is None:
            return ""
        first = int(mysql.group(2)[1:].partition("-")[0].partition(":")[0])
        known = any(a <= first <= b for a, b in self._intervals.get(mysql.group(1).lower(), []))
        return text if known else ""

    def beyond(self, text: str) -> str:
        """A GTID of this set that a MariaDB list of what was written until now (``text``) lies before; "" if none.

        A domain that the list does not name was removed from it on purpose (FLUSH BINARY LOGS DELETE_DOMAIN_ID).
        """
        for part in filter(None, text.split(",")):
            mariadb = _MARIADB.fullmatch(part)
            if mariadb is not None:
                domain, server, number = mariadb.groups()
                latest = self._latest.get((domain, server), 0)
                if latest > int(number):
                    return f"{domain}-{server}-{latest}"
        return ""

    def forget(self) -> None:
        """From here on the set is not known."""
        self._unknown = True
        self._text = None

    def __str__(self) -> str:
        if self._unknown:
            return ""
        if self._text is None:
            parts = [self._domains[domain] for domain in sorted(self._domains, key=int)]
            for server in sorted(self._intervals):
                spans = (f"{a}" if a == b else f"{a}-{b}" for a, b in self._intervals[server])
                parts.append(":".join((server, *spans)))
            self._text = ",".join(parts)
        return self._text


def _insert(intervals: list[tuple[int, int]], first: int, last: int) -> None:
    """Add first..last to sorted, disjoint, non-adjacent intervals."""
    if intervals and intervals[-1][1] + 1 == first:  # the usual case: the next number
        intervals[-1] = (intervals[-1][0], last)
        return
    merged: list[tuple[int, int]] = []
    for a, b in intervals:
        if b + 1 < first or last + 1 < a:
            merged.append((a, b))
        else:
            first, last = min(a, first), max(b, last)
    merged.append((first, last))
    merged.sort()
    intervals[:] = merged
